//! A strict reader of event streams, of its own so that it checks the server's encoder.
//!
//! Invariant: whatever the server has no reason to write is an error: an unknown field, a carriage
//! return, an empty id, data in two lines.

/// A block of an event stream; comments are left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The `id` field.
    pub id: Option<String>,
    /// The `data` field; empty in a priming event.
    pub data: Option<String>,
}

/// Takes bytes, gives blocks.
#[derive(Default)]
pub struct Decoder {
    held: Vec<u8>,
    at: usize,
}

impl Decoder {
    /// Adds what came from the network.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.held.drain(..self.at);
        self.at = 0;
        self.held.extend_from_slice(bytes);
    }

    /// Whether the end would be in the middle of a block.
    pub fn is_mid_block(&self) -> bool {
        self.at < self.held.len()
    }

    /// The next whole block.
    ///
    /// # Errors
    /// What is wrong with the stream.
    pub fn next(&mut self) -> Result<Option<Block>, String> {
        loop {
            let rest = self.held.get(self.at..).unwrap_or_default();
            let Some(end) = memchr::memmem::find(rest, b"\n\n") else { return Ok(None) };
            let text = rest.get(..end).unwrap_or_default();
            let block = parse(text).map_err(|why| format!("{why}: {}", text.escape_ascii()))?;
            self.at += end + 2;
            if block.id.is_some() || block.data.is_some() {
                return Ok(Some(block));
            }
        }
    }
}

fn parse(text: &[u8]) -> Result<Block, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "not UTF-8")?;
    let mut block = Block::default();
    for line in text.split('\n') {
        if line.contains('\r') {
            return Err("a carriage return");
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err("a line without a colon");
        };
        let value = value.strip_prefix(' ').unwrap_or(value);
        let twice = match name {
            "" => false,
            "id" if value.is_empty() => return Err("an empty id"),
            "id" => block.id.replace(value.to_owned()).is_some(),
            "data" => block.data.replace(value.to_owned()).is_some(),
            "retry" if value.parse::<u64>().is_ok() => false,
            _ => return Err("an unknown field"),
        };
        if twice {
            return Err("a field twice");
        }
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_whole_and_comments_do_not() {
        let mut decoder = Decoder::default();
        let mut blocks = Vec::new();
        for byte in b"id: t.0\nretry: 3000\ndata:\n\n:\n\nid: t.1\ndata: {}\n\nid: t" {
            decoder.feed(&[*byte]);
            blocks.extend(decoder.next().expect("well formed"));
        }
        let block = |id: &str, data: &str| Block { id: Some(id.into()), data: Some(data.into()) };
        assert_eq!(blocks, [block("t.0", ""), block("t.1", "{}")]);
        assert!(decoder.is_mid_block());
    }

    #[test]
    fn what_the_server_must_not_write_is_an_error() {
        for wrong in ["id:\n\n", "datum: 1\n\n", "id: 1\r\n\n", "data: 1\ndata: 2\n\n", "x\n\n"] {
            let mut decoder = Decoder::default();
            decoder.feed(wrong.as_bytes());
            assert!(decoder.next().is_err(), "{wrong:?}");
        }
    }
}
