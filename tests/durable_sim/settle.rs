//! The end of a run: the faults stop, and everybody must get everything.

use std::time::Duration;

use crate::disk::Name;
use crate::world::World;

impl World {
    /// The faults stop; after one more restart every client comes back and reads to the end.
    pub fn end(&mut self) {
        self.settling = true;
        self.disk_full = false;
        if self.process.is_some() && (self.is_poisoned() || self.rng.once_in(2)) {
            self.crash(false);
        }
        if self.process.is_none() {
            self.start();
        }
        self.land_all();
        for client in self.served() {
            let open = self.live(client).map(|live| std::mem::take(&mut live.fake.open));
            for call in open.into_iter().flatten() {
                self.answer(client, call, 10);
            }
        }
        self.land_all();
        for client in self.served() {
            self.drop_readers(client);
            let views = self.clients[&client].views.iter();
            let streams: Vec<u32> =
                views.filter(|(_, view)| !view.done).map(|(&stream, _)| stream).collect();
            for stream in streams {
                self.come_back(client, stream);
                self.read_to_the_end(client, stream);
                self.check_settled(client, stream);
            }
        }
        self.check_bounded();
    }

    fn served(&self) -> Vec<u32> {
        let lives = self.process.iter().flat_map(|process| process.lives.keys().copied());
        let known = |client: &u32| self.clients[client].known && !self.clients[client].over;
        lives.filter(known).collect()
    }

    fn land_all(&mut self) {
        // What waited for room is tried again.
        self.now += Duration::from_secs(1);
        let now = self.now;
        if let Some(process) = &self.process {
            process.journal.borrow_mut().handle_timeout(now);
        }
        for _ in 0..10_000 {
            self.settle();
            if self.process.as_ref().is_none_or(|process| process.flights.is_empty()) {
                return;
            }
            self.land();
        }
        panic!("check `settled`: the log does not come to rest");
    }

    fn read_to_the_end(&mut self, client: u32, stream: u32) {
        for _ in 0..200 {
            if !self.clients[&client].readers.contains_key(&stream) {
                return;
            }
            self.send(client, stream, 8);
            self.consume(client, stream);
            self.acknowledge(client, stream, true);
        }
    }

    fn check_settled(&self, client: u32, stream: u32) {
        let Some(view) = self.clients[&client].views.get(&stream).filter(|view| !view.done) else {
            return;
        };
        let lives = self.process.as_ref().map(|process| &process.lives);
        let session = lives.and_then(|lives| lives.get(&client)).map(|live| &live.session);
        let tail = session.and_then(|session| session.stream(stream)).map(|stream| stream.tail());
        if self.oracle.damaged || tail.is_none() {
            return;
        }
        let held = view.number;
        assert_eq!(Some(held), tail, "check `settled`: {client}/{stream} has {held} of {tail:?}");
    }

    /// What is paged out goes with its segments, until the log has what it may have.
    fn check_bounded(&mut self) {
        let now = self.now;
        for _ in 0..200 {
            for client in
                self.process.iter().flat_map(|p| p.lives.keys()).copied().collect::<Vec<_>>()
            {
                if let Some(live) = self.live(client) {
                    live.session.shrink(now, 0, &mut live.fake);
                }
            }
            self.retire();
            if self.process.as_ref().is_none_or(|process| !process.removing) {
                break;
            }
            self.land_all();
        }
        let most = self.limits.data_bytes + 3 * self.limits.segment_bytes;
        let bytes = self.disk.bytes();
        let names = self.disk.names();
        let spares = names.iter().filter(|name| matches!(name, Name::Spare(_))).count();
        assert!(bytes <= most && spares <= 1, "check `bounded`: {bytes} bytes of {most}");
    }
}
