use super::runs::Runs;
use super::*;

fn filled(sizes: &[usize]) -> Log {
    let mut log = Log::default();
    let now = Instant::now();
    for &size in sizes {
        log.append(now, size, |number, out| out.extend(std::iter::repeat_n(number as u8, size)));
    }
    log
}

#[test]
fn numbers_are_dense_and_positions_survive_trimming() {
    let mut log = filled(&[3, 5, 7, 600, 2]);
    assert_eq!((log.floor(), log.tail(), log.end()), (1, 5, 617));
    let fourth = log.start_of(4);
    log.trim(4);
    assert_eq!(log.start_of(4), fourth);
    assert_eq!((log.floor(), log.len(), log.bytes()), (4, 2, 602 + 8));
    let mut out = Vec::new();
    assert_eq!(log.read(fourth, 4, &mut out), 4);
    assert_eq!(out, [4; 4]);
}

#[test]
fn an_event_counts_only_when_its_last_byte_does() {
    let log = filled(&[10, 10, 10]);
    assert_eq!(log.last_ending_at(9), 0);
    assert_eq!(log.last_ending_at(10), 1);
    assert_eq!(log.last_ending_at(29), 2);
    assert_eq!(log.last_ending_at(30), 3);
    assert_eq!(log.last_ending_at(u64::MAX), 3);
}

#[test]
fn below_the_floor_nothing_is_found() {
    let mut log = filled(&[10; 8]);
    log.trim(5);
    assert_eq!(log.last_ending_at(39), 0);
    assert_eq!(log.last_ending_at(40), 4);
    assert_eq!(log.last_ending_at(49), 4);
    assert_eq!(log.last_ending_at(50), 5);
    log.trim(9);
    assert!(log.is_empty());
    assert_eq!((log.bytes(), log.start_of(9)), (0, 80));
}

#[test]
fn the_floor_for_a_budget_is_the_lowest_that_fits() {
    let log = filled(&[100; 50]);
    assert_eq!(log.floor_for(u64::MAX, u64::MAX), 1);
    assert_eq!(log.floor_for(1040, u64::MAX), 41);
    assert_eq!(log.floor_for(1039, u64::MAX), 42);
    assert_eq!(log.floor_for(u64::MAX, 3), 48);
    assert_eq!(log.floor_for(0, 3), 51);
}

/// Every event, its place moved at random again and again, is still where it was last put.
#[test]
fn runs_know_where_each_event_was_last_put() {
    let lengths: Vec<u64> = (0..40).map(|number| 1 + number % 7).collect();
    let start_of = |number: u64| lengths.iter().take(number as usize - 1).sum::<u64>();
    let mut random = 7u64;
    let mut draw = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
        (random >> 33) % below
    };
    for _ in 0..200 {
        let mut runs = Runs::default();
        let (mut places, mut offset, mut floor) = (Vec::new(), 0, 1);
        let mut next = |draw: &mut dyn FnMut(u64) -> u64, length: u64| {
            offset += draw(2) as u32 * 5;
            let place = Place { segment: draw(3) as u32 / 2, offset };
            offset += RECORD_HEADER_BYTES + length as u32;
            place
        };
        while places.len() < lengths.len() {
            let length = lengths[places.len()];
            places.push(next(&mut draw, length));
            let newest = places.len() as u64;
            runs.push(newest, places[places.len() - 1], length);
            if draw(3) == 0 {
                let number = floor + draw(newest + 1 - floor);
                let place = next(&mut draw, lengths[number as usize - 1]);
                places[number as usize - 1] = place;
                runs.replace(number, place, newest, start_of);
            }
            if draw(9) == 0 {
                floor += draw(newest + 2 - floor);
                runs.trim(floor, start_of);
            }
            if floor > newest {
                continue;
            }
            let mut found = Vec::new();
            for extent in runs.extents(floor, newest, start_of) {
                let mut place = extent.place;
                for number in extent.first..extent.first + extent.count {
                    found.push(place);
                    place = place.after(1, lengths[number as usize - 1]);
                }
            }
            assert_eq!(found, places[floor as usize - 1..]);
            let in_one: u64 = runs.within(1, newest).map(|(first, last)| last + 1 - first).sum();
            let expected = found.iter().filter(|place| place.segment == 1).count();
            assert_eq!(in_one, expected as u64);
        }
    }
}

/// Story: 320 finished calls held 14 MiB that nobody was charged for, each the unused end of its
/// last chunk; and chunks of large events were nearly half empty.
#[test]
fn what_takes_no_more_holds_what_it_is_charged() {
    for sizes in [&[1_000; 130][..], &[40_000; 4], &[100; 3], &[700, 20, 20]] {
        let mut log = filled(sizes);
        assert!(log.is_tight(false), "all but the last chunk, which may grow");
        log.close();
        assert!(log.is_tight(true));
        let held = log.chunks.iter().map(|chunk| chunk.data.capacity() + 4 * chunk.ends.capacity());
        let (held, charged) = (held.sum::<usize>() as u64, log.bytes());
        assert!(held <= charged + charged / 8 + 512 * log.chunks.len() as u64, "{sizes:?}: {held}");
        let mut out = Vec::new();
        while log.read(out.len() as u64, usize::MAX, &mut out) > 0 {}
        assert_eq!(out.len() as u64, log.end());
    }
    let log = filled(&[1_000; 130]);
    assert!(!log.is_tight(true), "what is not closed has room");
}
