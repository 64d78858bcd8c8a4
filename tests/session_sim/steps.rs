//! What may happen to a session, one thing a step.

use std::time::Duration;

use gapless::mcp::headers::Accept;
use gapless::mcp::jsonrpc;
use gapless::session::{
    About, Answers, CallKey, ExchangeKey, Posted, Reply, ReplyForm, STANDALONE,
};
use gapless::stream::receipt::Stage;

use crate::oracle::Place;
use crate::world::World;

impl World {
    pub fn step(&mut self) {
        self.shrinking = false;
        self.find_caught_up();
        match self.rng.between(0, 39) {
            0..=7 => self.post(),
            8 => self.post_other(),
            9..=13 => self.answer_one(),
            14..=19 => self.write_some(),
            20 => self.ask(),
            21 => self.cancel(),
            22..=27 => self.read_some(),
            28..=30 => self.take_some_reply(),
            31 => self.drop_reader(),
            32..=34 => self.come_back(),
            35 => self.listen(),
            36 => self.comment(),
            37 => self.pass_time(),
            38 => self.rare(),
            _ => self.tell(),
        }
        self.settle();
    }

    fn post(&mut self) {
        self.note("post");
        let json = !self.rng.once_in(4);
        let accept = Accept { json, sse: !json || !self.rng.once_in(4) };
        let answers = [Answers::Auto, Answers::Json, Answers::Sse];
        let answers = *self.rng.pick(&answers).expect("three");
        let messages = if self.batches { self.rng.skewed(6) } else { 1 };
        let calls: Vec<String> = (0..messages).map(|_| self.call()).collect();
        let text = match self.batches && messages > 1 {
            true => format!("[{}]", calls.join(",")),
            false => calls.into_iter().next().expect("one"),
        };
        if messages > 1 {
            self.oracle.reached.mark("batch");
        }
        let form = ReplyForm { accept, answers };
        if let Posted::Exchange(key) = self.handle_post(&text, form) {
            self.waiting.push(key);
        }
    }

    fn call(&mut self) -> String {
        let id = self.serial();
        let token = if self.rng.once_in(2) { r#""_meta":{"progressToken":"token"}"# } else { "" };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{token}}}}}"#)
    }

    fn handle_post(&mut self, text: &str, form: ReplyForm) -> Posted {
        let message = jsonrpc::parse(text.as_bytes()).expect("a message");
        let upstream = &mut self.upstream;
        self.session.handle_post(self.now, &message, form, upstream).expect("taken")
    }

    /// A notification, or an answer to one of the upstream's requests, open or not.
    fn post_other(&mut self) {
        self.note("post other");
        let id = self.rng.between(1, 20);
        let text = match self.rng.once_in(2) {
            true => r#"{"jsonrpc":"2.0","method":"notifications/x"}"#.to_owned(),
            false => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
        };
        let accept = Accept { json: true, sse: true };
        let posted = self.handle_post(&text, ReplyForm { accept, answers: Answers::Auto });
        assert_eq!(posted, Posted::Accepted);
    }

    /// The upstream answers one of its calls.
    fn answer_one(&mut self) {
        self.note("answer");
        if self.upstream.open.is_empty() {
            return;
        }
        let index = self.rng.between(0, self.upstream.open.len() as u64 - 1) as usize;
        let (call, id) = self.upstream.open.swap_remove(index);
        if self.rng.once_in(8) {
            self.session.keep_task(call, "task");
        }
        let bytes = if self.rng.once_in(8) { 4000 } else { self.rng.skewed(600) };
        self.respond(call, id, bytes);
    }

    /// The final answer of a call, padded to so many bytes.
    pub fn respond(&mut self, call: CallKey, id: u64, bytes: u64) {
        let serial = self.serial();
        let pad = "x".repeat(bytes as usize);
        let result = format!(r#"{{"serial":{serial},"pad":"{pad}"}}"#);
        let before = self.session.bytes();
        let open = self.session.respond(self.now, call, result.len() + 60, |id, out| {
            jsonrpc::result(out, id, result.as_bytes());
        });
        assert!(open, "check `one answer`: nobody waited for call {id}");
        if self.session.bytes() > before {
            self.oracle.reached.mark("answer kept");
        }
        self.oracle.handle_end(id, "answered");
    }

    fn some_call(&mut self) -> About {
        let calls: Vec<CallKey> = self.upstream.open.iter().map(|&(call, _)| call).collect();
        match self.rng.once_in(3) {
            true => About::Standalone,
            false => self.rng.pick(&calls).map_or(About::Standalone, |&call| About::Call(call)),
        }
    }

    fn write_some(&mut self) {
        self.note("write");
        let about = self.some_call();
        let starts = self.rng.once_in(2);
        for _ in 0..self.rng.skewed(12) {
            let (serial, bytes) = (self.serial(), self.rng.skewed(700) as usize);
            let message = format!(r#"{{"serial":{serial},"pad":"{}"}}"#, "y".repeat(bytes));
            let write = |out: &mut Vec<u8>| out.extend_from_slice(message.as_bytes());
            match starts {
                true => self.session.notify(self.now, about, message.len(), write),
                false => self.session.write(self.now, about, message.len(), write),
            };
        }
    }

    fn ask(&mut self) {
        self.note("ask");
        let (about, id) = (self.some_call(), self.serial().to_string());
        self.session.ask(self.now, about, &id, 1, 60, |key, out| {
            jsonrpc::request(out, &key.to_string(), "ping", None);
        });
        if self.rng.once_in(4) {
            self.session.withdraw(self.now, &id, 1, |_, out| out.extend_from_slice(b"{}"));
        }
    }

    fn cancel(&mut self) {
        self.note("cancel");
        let open = self.upstream.open.clone();
        let Some(&(_, id)) = self.rng.pick(&open) else { return };
        let (method, params) = ("notifications/cancelled", format!(r#"{{"requestId":{id}}}"#));
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
        let accept = Accept { json: true, sse: true };
        self.handle_post(&text, ReplyForm { accept, answers: Answers::Auto });
        assert!(!self.upstream.open.iter().any(|&(_, open)| open == id));
        self.oracle.handle_end(id, "cancelled");
        self.oracle.reached.mark("cancelled call");
    }

    fn some_reader(&mut self) -> Option<u32> {
        let mut streams: Vec<u32> = self.readers.keys().copied().collect();
        streams.sort_unstable();
        self.rng.pick(&streams).copied()
    }

    /// A reader takes something, or everything.
    fn read_some(&mut self) {
        self.note("read");
        let Some(stream) = self.some_reader() else { return };
        let all = self.rng.once_in(3);
        let turns = if all { u64::MAX } else { self.rng.skewed(3) };
        self.read(stream, turns);
        self.acknowledge(stream, all);
        // Says wait, and that nothing is under way.
        self.read(stream, u64::from(all));
    }

    fn take_some_reply(&mut self) {
        self.note("reply");
        if self.waiting.is_empty() {
            return;
        }
        let index = self.rng.between(0, self.waiting.len() as u64 - 1) as usize;
        let key = self.waiting.swap_remove(index);
        match self.rng.once_in(6) {
            true => self.session.abandon(key),
            false => self.take_reply(key),
        }
    }

    /// The connection that posted asks for its reply.
    pub fn take_reply(&mut self, key: ExchangeKey) {
        match self.session.reply(key) {
            Reply::Pending => self.waiting.push(key),
            Reply::Stream(stream) => {
                if let Some(attached) = self.session.attach_first(stream) {
                    self.attached(stream, &attached);
                }
            }
            Reply::Json(body) => {
                let text = String::from_utf8(body).expect("text");
                // A batch: answers stand one behind the other, each with its own members.
                for part in text.split("{\"jsonrpc\"") {
                    self.oracle.handle_seen(part, Place::Json(key));
                }
            }
            Reply::Gone => {}
        }
    }

    fn drop_reader(&mut self) {
        self.note("drop");
        if let Some(stream) = self.some_reader() {
            self.close(stream);
        }
    }

    /// A client comes back with its cursor, whether or not its old connection is gone.
    fn come_back(&mut self) {
        self.note("resume");
        let mut known: Vec<u32> = self.cursors.keys().copied().collect();
        known.sort_unstable();
        let Some(&stream) = self.rng.pick(&known) else { return };
        let cursor = self.cursors[&stream].clone();
        match self.session.resume(self.now, cursor.as_bytes()) {
            Err(_) => self.oracle.reached.mark("resume refused"),
            Ok((found, takeover)) => {
                assert_eq!(found, stream, "check `one stream`: a cursor names another");
                if takeover.must_close().is_some() {
                    self.close(stream);
                }
                if let Ok(attached) = self.session.attach(stream, takeover, cursor.as_bytes()) {
                    self.oracle.reached.mark("resumed");
                    self.attached(stream, &attached);
                }
            }
        }
    }

    fn listen(&mut self) {
        self.note("listen");
        let (stream, takeover) = self.session.listen(self.now);
        if takeover.must_close().is_some() {
            self.close(stream);
        }
        if let Ok(attached) = self.session.attach(stream, takeover, b"") {
            self.attached(stream, &attached);
        }
    }

    fn comment(&mut self) {
        self.note("comment");
        let about = self.some_call();
        let before = self.session.bytes();
        self.session.comment_about(self.now, about, b"a comment that waits for its connection");
        if self.session.bytes() > before {
            self.oracle.reached.mark("comment waiting");
        }
    }

    fn pass_time(&mut self) {
        self.note("time");
        self.now += Duration::from_millis(self.rng.skewed(20_000));
        self.session.touch(self.now);
        let open = self.upstream.open.clone();
        self.session.handle_timeout(self.now, &mut self.upstream);
        for (call, id) in open {
            if self.upstream.cancelled.contains(&call) && !self.oracle.is_over(id) {
                self.oracle.handle_end(id, "timed out");
            }
        }
    }

    fn rare(&mut self) {
        match self.rng.between(0, 5) {
            0 | 1 => {
                self.note("shrink");
                self.shrinking = true;
                let most = self.rng.between(0, self.session.bytes());
                self.session.shrink(self.now, most, &mut self.upstream);
            }
            2 => {
                self.note("upstream lost");
                for (_, id) in std::mem::take(&mut self.upstream.open) {
                    self.oracle.handle_end(id, "lost");
                }
                self.session.handle_upstream_lost(self.now, 1, "gone");
            }
            3 => self.end_tasks(),
            4 => {
                let about = self.some_call();
                self.session.close_about(about);
            }
            _ => {
                if let About::Call(call) = self.some_call() {
                    self.session.reserve(call);
                }
            }
        }
    }

    pub fn end_tasks(&mut self) {
        self.note("end tasks");
        self.session.end_task("task");
    }

    fn tell(&mut self) {
        self.note("tell");
        let ticket = self.serial();
        let Some(tail) = self.session.stream(STANDALONE).map(|stream| stream.tail()) else {
            return;
        };
        let deadline = self.now + Duration::from_secs(5);
        self.session.tell(STANDALONE, ticket, tail.max(1), Stage::Named, deadline);
    }
}
