//! What clients have seen, and what must be so whatever happens.

use std::collections::{BTreeMap, HashMap};

use gapless::session::Session;

/// Where a message was seen: in a JSON body, or on a stream under a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Json(u64),
    Stream(u32, u64),
}

/// How often something happened, to know that the runs are worth something.
#[derive(Debug, Default)]
pub struct Reached(BTreeMap<&'static str, u64>);

/// What has to happen at least once in all runs together.
const WANTED: [&str; 12] = [
    "answer as JSON",
    "answer on a stream",
    "batch",
    "cancelled call",
    "cut reader",
    "resumed",
    "resume refused",
    "question came back",
    "comment waiting",
    "session over its budget",
    "answer kept",
    "answer refused",
];

impl Reached {
    pub fn mark(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    pub fn missing(&self) -> Vec<&'static str> {
        WANTED.into_iter().filter(|what| !self.0.contains_key(what)).collect()
    }
}

#[derive(Default)]
pub struct Oracle {
    pub reached: Reached,
    /// Where each message was seen, by its serial number.
    messages: HashMap<u64, Place>,
    /// Where the final answer of each call was seen, by the client's id.
    answers: HashMap<u64, Place>,
    /// Calls that were answered or cancelled, by the client's id.
    ended: HashMap<u64, &'static str>,
}

impl Oracle {
    /// The upstream has answered a call, or it was given up: at most once.
    pub fn handle_end(&mut self, id: u64, how: &'static str) {
        if let Some(before) = self.ended.insert(id, how) {
            panic!("check `one end`: call {id} was {before} and then {how}");
        }
    }

    pub fn is_over(&self, id: u64) -> bool {
        self.ended.contains_key(&id)
    }

    /// A client has read a message, or an answer to its request, at one place.
    pub fn handle_seen(&mut self, text: &str, place: Place) {
        let number = |name: &str| {
            let (_, after) = text.split_once(name)?;
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        };
        if let Some(serial) = number("\"serial\":") {
            let known = *self.messages.entry(serial).or_insert(place);
            assert_eq!(known, place, "check `one stream`: message {serial} is in two places");
        }
        let is_answer = text.contains("\"result\":") || text.contains("\"error\":");
        if let Some(id) = number("\"id\":").filter(|_| is_answer) {
            let known = *self.answers.entry(id).or_insert(place);
            assert_eq!(known, place, "check `one answer`: call {id} has two");
            self.reached.mark(match place {
                Place::Json(_) => "answer as JSON",
                Place::Stream(..) => "answer on a stream",
            });
            if text.contains("no_room") {
                self.reached.mark("answer refused");
            }
        }
    }

    /// What must hold between two calls of the session.
    pub fn check(&self, session: &Session, stream_bytes: u64, session_bytes: u64) {
        assert_eq!(session.bytes(), session.recount(), "check `account`: bytes and recount");
        let streams = session.stream_numbers();
        let logs = streams.iter().filter_map(|&number| session.stream(number));
        let logs: Vec<u64> = logs.map(|stream| stream.bytes()).collect();
        for &bytes in &logs {
            assert!(bytes <= stream_bytes, "check `budget`: a log of {bytes}");
        }
        let all: u64 = logs.iter().sum();
        assert!(all <= session_bytes, "check `budget`: logs of {all}");
    }
}
