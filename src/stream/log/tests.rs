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
