//! What may happen, one thing a step.

use std::time::Duration;

use gapless::mcp::headers::Accept;
use gapless::mcp::jsonrpc;
use gapless::mcp::session_id::SessionId;
use gapless::session::{About, Answers, Ended, Posted, ReplyForm, STANDALONE, Session};

use crate::client::Client;
use crate::upstream::Fake;
use crate::world::World;

/// Sessions that live at once.
const SESSIONS_MAX: usize = 4;

impl World {
    pub fn step(&mut self) {
        if self.process.is_none() {
            return self.start();
        }
        self.tell();
        match self.rng.between(0, 119) {
            0..=7 => self.post(),
            8..=20 => self.write_some(),
            21..=26 => self.answer_some(),
            27..=38 => self.read_some(),
            39..=46 => self.some_comes_back(),
            47..=49 => self.drop_some(),
            50..=52 => self.some_listens(),
            53 => self.cancel(),
            54..=56 => self.begin_session(),
            57 => self.end_session(),
            58..=60 => self.shrink(),
            61..=64 => self.retire(),
            65..=66 => self.pass_time(),
            67 => self.disk.write_back(&mut self.disk_rng),
            68 => self.rare(),
            69..=71 => self.die(),
            _ => self.land(),
        }
        self.settle();
    }

    /// The answer to `initialize` goes out once the session is in the log.
    fn tell(&mut self) {
        let Some(process) = &self.process else { return };
        let committed = process.journal.borrow().committed();
        for (number, live) in &process.lives {
            let at = live.session.remembered_at();
            let Some(client) = self.clients.get_mut(number) else { continue };
            client.known |= at > 0 && at <= committed && client.starting == Some(self.meta.runs);
        }
    }

    fn some(&mut self, numbers: &[u32]) -> Option<u32> {
        self.rng.pick(numbers).copied()
    }

    /// A client that has its session.
    fn some_client(&mut self) -> Option<u32> {
        let lives = &self.process.as_ref()?.lives;
        let known = |number: &u32| {
            self.clients.get(number).is_some_and(|client| client.known && !client.over)
        };
        let clients: Vec<u32> = lives.keys().copied().filter(known).collect();
        self.some(&clients)
    }

    fn some_reader(&mut self) -> Option<(u32, u32)> {
        let client = self.some_client()?;
        let streams: Vec<u32> = self.clients[&client].readers.keys().copied().collect();
        Some((client, self.some(&streams)?))
    }

    pub fn begin_session(&mut self) {
        let (now, runs) = (self.now, self.meta.runs);
        let number = self.clients.len() as u32;
        let Some(process) = &mut self.process else { return };
        if process.lives.len() >= SESSIONS_MAX || process.closing {
            return;
        }
        let mut random = [0; 16];
        random[..4].copy_from_slice(&(number + 1).to_le_bytes());
        let id = SessionId::from_random(0, random);
        let mut session = Session::new(id, process.settings.clone(), now, 0);
        session.set_initialized("2025-11-25");
        let mut fake = Fake::default();
        fake.told.initialize = format!(r#"{{"client":{number}}}"#);
        process.adopt(number, session, fake);
        let mut client = Client::new(id);
        client.starting = Some(runs);
        self.clients.insert(number, client);
        self.note(format!("session {number}"));
    }

    fn end_session(&mut self) {
        if !self.rng.once_in(2) {
            return;
        }
        let Some(client) = self.some_client() else { return };
        self.note(format!("end of session {client}"));
        self.drop_readers(client);
        if let Some(live) = self.live(client) {
            live.session.end(Ended::Deleted);
        }
        self.clients.entry(client).and_modify(|client| client.over = true);
        self.mark("session ended for good");
    }

    fn post(&mut self) {
        let Some(client) = self.some_client() else { return };
        let id = self.serial();
        let now = self.now;
        let is_setup = self.rng.once_in(8);
        let method = if is_setup { "logging/setLevel" } else { "tools/call" };
        let params = format!(r#"{{"level":{id}}}"#);
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let answers = [Answers::Auto, Answers::Sse, Answers::Json];
        let answers = *self.rng.pick(&answers).expect("three");
        let form = ReplyForm { accept: Accept { json: true, sse: true }, answers };
        self.note(format!("post {id} to {client}"));
        let Some(live) = self.live(client) else { return };
        let message = jsonrpc::parse(text.as_bytes()).expect("a message");
        let posted = live.session.handle_post(now, &message, form, &mut live.fake);
        let Ok(Posted::Exchange(key)) = posted else { return };
        live.waiting.push(key);
        if is_setup {
            live.fake.told.requests = vec![(method.to_owned(), params.clone())];
            self.clients.entry(client).and_modify(|client| client.setups.push(params));
        }
        self.settle_session(client);
        self.take_replies(client);
    }

    fn write_some(&mut self) {
        let Some(client) = self.some_client() else { return };
        let starts = self.rng.once_in(2);
        for _ in 0..self.rng.skewed(6) {
            let (serial, bytes) = (self.serial(), self.rng.skewed(500) as usize);
            self.oracle.messages.insert(serial, client);
            let message = format!(r#"{{"serial":{serial},"pad":"{}"}}"#, "y".repeat(bytes));
            let now = self.now;
            let on_standalone = self.rng.once_in(2);
            let pick = self.rng.next() as usize;
            let Some(live) = self.live(client) else { return };
            let open = &live.fake.open;
            let about = match open.is_empty() || on_standalone {
                true => About::Standalone,
                false => About::Call(open[pick % open.len()].0),
            };
            let write = |out: &mut Vec<u8>| out.extend_from_slice(message.as_bytes());
            match starts {
                true => live.session.notify(now, about, message.len(), write),
                false => live.session.write(now, about, message.len(), write),
            };
            self.note_appended(client);
        }
        self.take_replies(client);
    }

    fn answer_some(&mut self) {
        let Some(client) = self.some_client() else { return };
        let pick = self.rng.next() as usize;
        let Some(live) = self.live(client) else { return };
        if live.fake.open.is_empty() {
            return;
        }
        let index = pick % live.fake.open.len();
        let call = live.fake.open.swap_remove(index);
        let bytes = self.rng.skewed(400);
        self.answer(client, call, bytes);
    }

    pub fn answer(&mut self, client: u32, (call, id): (u64, u64), bytes: u64) {
        let (serial, now) = (self.serial(), self.now);
        self.note(format!("answer {id} of {client}"));
        self.oracle.messages.insert(serial, client);
        let pad = "x".repeat(bytes as usize);
        let result = format!(r#"{{"serial":{serial},"pad":"{pad}"}}"#);
        let Some(live) = self.live(client) else { return };
        live.session.respond(now, call, result.len() + 60, |id, out| {
            jsonrpc::result(out, id, result.as_bytes());
        });
        self.note_appended(client);
        self.take_replies(client);
    }

    fn cancel(&mut self) {
        let Some(client) = self.some_client() else { return };
        let now = self.now;
        let Some(live) = self.live(client) else { return };
        let Some(&(_, id)) = live.fake.open.first() else { return };
        let (method, params) = ("notifications/cancelled", format!(r#"{{"requestId":{id}}}"#));
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
        let form = ReplyForm { accept: Accept { json: true, sse: true }, answers: Answers::Auto };
        let message = jsonrpc::parse(text.as_bytes()).expect("a message");
        let posted = live.session.handle_post(now, &message, form, &mut live.fake);
        assert_eq!(posted, Ok(Posted::Accepted));
        self.note(format!("cancel {id} of {client}"));
        self.take_replies(client);
    }

    fn read_some(&mut self) {
        let Some((client, stream)) = self.some_reader() else { return };
        let turns = self.rng.skewed(6);
        self.send(client, stream, turns);
        if self.rng.once_in(2) {
            self.consume(client, stream);
        }
        let all = self.rng.once_in(2);
        self.acknowledge(client, stream, all);
    }

    fn some_comes_back(&mut self) {
        let Some(client) = self.some_client() else { return };
        let views = &self.clients[&client].views;
        let known = views.iter().filter(|(_, view)| !view.done).map(|(&stream, _)| stream);
        let known: Vec<u32> = known.collect();
        if let Some(stream) = self.some(&known) {
            self.come_back(client, stream);
        }
    }

    fn some_listens(&mut self) {
        let Some(client) = self.some_client() else { return };
        let has_cursor = self.clients[&client].views.contains_key(&STANDALONE);
        if !has_cursor || self.rng.once_in(6) {
            self.listen(client);
        }
    }

    fn drop_some(&mut self) {
        if let Some((client, stream)) = self.some_reader() {
            self.close(client, stream, None);
        }
    }

    fn shrink(&mut self) {
        let now = self.now;
        let Some(client) = self.some_client() else { return };
        let drops = self.rng.once_in(6);
        let most = if drops { self.rng.between(0, 4000) } else { 9000 };
        if let Some(live) = self.live(client) {
            live.session.shrink(now, most, &mut live.fake);
        }
    }

    pub fn pass_time(&mut self) {
        let seconds = self.rng.skewed(40);
        self.unix += seconds;
        self.now += Duration::from_secs(seconds);
        let now = self.now;
        let Some(process) = &mut self.process else { return };
        process.journal.borrow_mut().handle_timeout(now);
        for client in process.lives.keys().copied().collect::<Vec<_>>() {
            if let Some(live) = self.live(client) {
                live.session.touch(now);
                live.session.handle_timeout(now, &mut live.fake);
            }
            self.settle_session(client);
        }
    }

    fn rare(&mut self) {
        match self.rng.between(0, 3) {
            0 if self.hostility.fills_up => {
                self.disk_full = !self.disk_full;
                self.note(format!("the disk is full: {}", self.disk_full));
            }
            1 => {
                if let Some((client, stream)) = self.some_reader()
                    && let Some(live) = self.live(client)
                {
                    live.session.close_planned(stream);
                }
            }
            _ => {}
        }
    }

    /// The process ends, in one way or another.
    fn die(&mut self) {
        match self.rng.between(0, 7) {
            0 | 1 => self.crash(false),
            2 | 3 => self.crash(true),
            4 => self.begin_end(),
            _ => {}
        }
    }

    /// A planned end begins: calls are answered, streams close, the log gets its last record.
    pub fn begin_end(&mut self) {
        let now = self.now;
        let Some(process) = &self.process else { return };
        let clients: Vec<u32> = process.lives.keys().copied().collect();
        self.note("a planned end begins");
        for client in clients {
            if let Some(live) = self.live(client) {
                live.session.drain(now);
            }
            self.note_appended(client);
        }
        self.settle();
        let Some(process) = &mut self.process else { return };
        process.closing = true;
        process.journal.borrow_mut().close();
        self.mark("planned end");
        for _ in 0..self.rng.between(0, 60) {
            self.land();
            self.settle();
        }
        let with_power = self.rng.once_in(2);
        self.crash(with_power);
    }
}
