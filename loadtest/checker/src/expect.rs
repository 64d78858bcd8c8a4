//! What a stream has to carry, event by event: the oracle.
//!
//! Invariant: the expectation of event number N depends on the call alone, never on what was read
//! before, so that a replay is checked as strictly as the first reading.

use serde::Deserialize;

/// What the numbered events of a stream hold.
#[derive(Clone, Debug)]
pub enum Payload {
    /// `notifications/message` with a sequence number and so many bytes of padding.
    Padded(usize),
    /// `notifications/progress` with this token.
    Progress(String),
}

/// A whole stream.
#[derive(Clone, Debug)]
pub struct Expected {
    /// What its events hold.
    pub payload: Payload,
    /// Events of each series, one after the other; their sequence numbers start at 1 each time.
    pub series: Vec<u64>,
    /// The id of the request whose response ends the stream; none for the standalone stream.
    pub call: Option<u64>,
}

#[derive(Deserialize)]
struct Message<'a> {
    jsonrpc: &'a str,
    id: Option<u64>,
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
    #[serde(borrow)]
    result: Option<CallResult<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    data: Option<Data<'a>>,
    progress_token: Option<&'a str>,
    progress: Option<u64>,
}

#[derive(Deserialize)]
struct Data<'a> {
    seq: u64,
    pad: &'a str,
}

#[derive(Deserialize)]
struct CallResult<'a> {
    #[serde(borrow)]
    content: Vec<Content<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    text: &'a str,
}

impl Expected {
    /// The number of the last event.
    pub fn tail(&self) -> u64 {
        self.events() + u64::from(self.call.is_some())
    }

    /// Events without the response.
    pub fn events(&self) -> u64 {
        self.series.iter().sum()
    }

    /// Bytes that its log will hold, near enough.
    pub fn bytes(&self) -> u64 {
        let padding = match &self.payload {
            Payload::Padded(size) => *size as u64,
            Payload::Progress(_) => 0,
        };
        (padding + 200) * self.events()
    }

    /// Whether event `number` may hold `data`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, number: u64, data: &str) -> Result<(), String> {
        let wrong = |what: &str| {
            let start: String = data.chars().take(300).collect();
            Err(format!("event {number}: {what}: {start}"))
        };
        let message: Message = match serde_json::from_str(data) {
            Ok(message) => message,
            Err(error) => return wrong(&format!("unread, {error}")),
        };
        if message.jsonrpc != "2.0" {
            return wrong("not JSON-RPC 2.0");
        }
        let Some(seq) = self.sequence(number) else {
            return match self.call {
                Some(call) if number == self.tail() => {
                    self.check_result(call, &message).or_else(wrong)
                }
                _ => wrong("an event after the last one"),
            };
        };
        match (&self.payload, &message.params) {
            (_, None) => wrong("no params"),
            (Payload::Padded(size), Some(params)) => match &params.data {
                Some(data) if data.seq != seq => wrong(&format!("sequence {seq} was due")),
                Some(data) if data.pad.len() != *size => wrong("padding of another length"),
                Some(_) if message.method == Some("notifications/message") => Ok(()),
                _ => wrong("another message was due"),
            },
            (Payload::Progress(token), Some(params)) => {
                if params.progress_token != Some(token) {
                    wrong("a foreign progress token")
                } else if params.progress != Some(seq) {
                    wrong(&format!("progress {seq} was due"))
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Whether `body` is the response, by itself.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_answer(&self, body: &str) -> Result<(), String> {
        self.check(self.tail(), body)
    }

    fn check_result(&self, call: u64, message: &Message) -> Result<(), &'static str> {
        if message.id != Some(call) || message.method.is_some() {
            return Err("another response was due");
        }
        let Some(result) = &message.result else { return Err("no result") };
        let text = result.content.first().map_or("", |content| content.text);
        let sent: Option<u64> = text.split(' ').next().and_then(|word| word.parse().ok());
        // The response to a call that fed the standalone stream counts events of that one.
        match sent {
            Some(sent) if self.series.is_empty() || sent == self.events() => Ok(()),
            _ => Err("a result with another count"),
        }
    }

    /// The sequence number within its series; none behind the last event.
    fn sequence(&self, number: u64) -> Option<u64> {
        let mut left = number;
        for count in &self.series {
            if left <= *count {
                return (left > 0).then_some(left);
            }
            left -= count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, pad: &str) -> String {
        let data = format!(r#"{{"seq":{seq},"pad":"{pad}"}}"#);
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":{data}}}}}"#
        )
    }

    fn result(call: u64, text: &str) -> String {
        let content = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
        format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"content":{content}}}}}"#)
    }

    #[test]
    fn each_event_has_its_place() {
        let expected = Expected { payload: Payload::Padded(2), series: vec![2, 1], call: Some(7) };
        assert_eq!(expected.tail(), 4);
        for (number, seq) in [(1, 1), (2, 2), (3, 1)] {
            assert_eq!(expected.check(number, &event(seq, "xx")), Ok(()));
            assert!(expected.check(number, &event(seq + 1, "xx")).is_err());
            assert!(expected.check(number, &event(seq, "x")).is_err());
            assert!(expected.check(number, &result(7, "3 events sent")).is_err());
        }
        assert_eq!(expected.check(4, &result(7, "3 events sent")), Ok(()));
        for (number, data) in [
            (0, event(1, "xx")),
            (4, event(2, "xx")),
            (4, result(8, "3 events sent")),
            (4, result(7, "2 events sent")),
            (5, result(7, "3 events sent")),
        ] {
            assert!(expected.check(number, &data).is_err(), "{number} {data}");
        }
    }
}
