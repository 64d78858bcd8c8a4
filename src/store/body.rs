//! The bodies of session and stream records.
//!
//! All numbers are little endian; a field is its length (u32) and its bytes. What is not exactly a
//! body is an error: a record that passed its checksum and does not decode is damage or a fault of
//! the writer, and either way nothing to guess at.

use crate::limits::RPC_ID_BYTES_MAX;
use crate::mcp::session_id::SessionId;

/// Request ids of one stream, at the most: an event names the one that it answers in 16 bits.
pub const STREAM_IDS_MAX: usize = u16::MAX as usize;

/// How a session's client talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// Streamable HTTP.
    StreamableHttp = 0,
    /// HTTP+SSE (MCP 2024-11-05).
    HttpSse = 1,
}

/// What a session is: enough to serve it again and to set up a new child for it. No credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionBody {
    /// Its id, a secret.
    pub id: SessionId,
    /// Whose it is: a stable hash of the name of a key or principal; 0 for nobody's.
    pub principal: u64,
    /// The name of the server behind it.
    pub server: String,
    /// How its client talks.
    pub transport: Transport,
    /// The number that its next stream gets, at least.
    pub next_stream: u32,
    /// The negotiated revision, as the upstream named it.
    pub revision: String,
    /// Where the client of an HTTP+SSE session posts; otherwise empty.
    pub endpoint: String,
    /// The client's `initialize` request, raw; empty before there was one.
    pub initialize: Vec<u8>,
    /// The upstream's result of it, raw; empty before there was one.
    pub result: Vec<u8>,
}

/// A request that is answered on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamId {
    /// The id, raw JSON.
    pub raw: Vec<u8>,
    /// Whether the answer was logged.
    pub answered: bool,
}

/// What a stream is, beside what its record's header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamBody {
    /// Number of its newest event so far.
    pub tail: u64,
    /// The requests that are answered on it; an event names one by its place here, from 1.
    pub ids: Vec<StreamId>,
}

/// Why a body does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBody {
    /// It ends inside of a field.
    Short,
    /// Something follows its last field.
    Trailing,
    /// A name is no UTF-8.
    Text,
    /// A code that has no meaning.
    Code(u8),
    /// More or longer ids than there can be.
    Ids,
}

/// What is left of a body.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadBody> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BadBody::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn code(&mut self) -> Result<u8, BadBody> {
        self.take::<1>().map(|[code]| code)
    }

    fn number(&mut self) -> Result<u32, BadBody> {
        self.take().map(u32::from_le_bytes)
    }

    fn field(&mut self) -> Result<&'b [u8], BadBody> {
        let length = self.number()? as usize;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(BadBody::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<String, BadBody> {
        std::str::from_utf8(self.field()?).map(str::to_owned).map_err(|_| BadBody::Text)
    }

    fn end(&self) -> Result<(), BadBody> {
        if self.0.is_empty() { Ok(()) } else { Err(BadBody::Trailing) }
    }
}

/// # Panics
/// Where the field has 4 GiB or more, which the bounds of a message exclude.
fn push_field(out: &mut Vec<u8>, field: &[u8]) {
    let length = u32::try_from(field.len()).expect("a field is bounded far below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(field);
}

impl SessionBody {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.shard.to_be_bytes());
        out.extend_from_slice(&self.id.random);
        out.push(self.transport as u8);
        out.extend_from_slice(&self.principal.to_le_bytes());
        out.extend_from_slice(&self.next_stream.to_le_bytes());
        push_field(out, self.server.as_bytes());
        push_field(out, self.revision.as_bytes());
        push_field(out, self.endpoint.as_bytes());
        push_field(out, &self.initialize);
        push_field(out, &self.result);
    }

    /// Reads a body, which is all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBody> {
        let mut fields = Fields(bytes);
        let shard = u16::from_be_bytes(fields.take()?);
        let id = SessionId::from_random(shard, fields.take()?);
        let transport = match fields.code()? {
            0 => Transport::StreamableHttp,
            1 => Transport::HttpSse,
            code => return Err(BadBody::Code(code)),
        };
        let body = Self {
            id,
            transport,
            principal: u64::from_le_bytes(fields.take()?),
            next_stream: fields.number()?,
            server: fields.text()?,
            revision: fields.text()?,
            endpoint: fields.text()?,
            initialize: fields.field()?.to_vec(),
            result: fields.field()?.to_vec(),
        };
        fields.end().map(|()| body)
    }
}

/// Appends the body of a stream's record: [`StreamBody`], from its parts.
///
/// # Panics
/// Where there are more than [`STREAM_IDS_MAX`] ids.
pub fn push_stream<'i>(
    out: &mut Vec<u8>,
    tail: u64,
    ids: impl ExactSizeIterator<Item = (&'i [u8], bool)>,
) {
    assert!(ids.len() <= STREAM_IDS_MAX, "more ids than events can name");
    out.extend_from_slice(&tail.to_le_bytes());
    out.extend_from_slice(&(ids.len() as u32).to_le_bytes());
    for (raw, answered) in ids {
        out.push(u8::from(answered));
        push_field(out, raw);
    }
}

impl StreamBody {
    /// Appends the body.
    ///
    /// # Panics
    /// Where there are more than [`STREAM_IDS_MAX`] ids.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ids = self.ids.iter().map(|id| (id.raw.as_slice(), id.answered));
        push_stream(out, self.tail, ids);
    }

    /// Reads a body, which is all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBody> {
        let mut fields = Fields(bytes);
        let tail = u64::from_le_bytes(fields.take()?);
        let count = fields.number()? as usize;
        if count > STREAM_IDS_MAX {
            return Err(BadBody::Ids);
        }
        let mut ids = Vec::new();
        for _ in 0..count {
            let answered = match fields.code()? {
                0 => false,
                1 => true,
                code => return Err(BadBody::Code(code)),
            };
            let raw = fields.field()?;
            if raw.len() > RPC_ID_BYTES_MAX {
                return Err(BadBody::Ids);
            }
            ids.push(StreamId { raw: raw.to_vec(), answered });
        }
        fields.end().map(|()| Self { tail, ids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionBody {
        SessionBody {
            id: SessionId::from_random(3, [9; 16]),
            server: "default".into(),
            principal: 77,
            transport: Transport::HttpSse,
            next_stream: 5,
            revision: "2024-11-05".to_owned(),
            endpoint: "/messages?session=é".to_owned(),
            initialize: b"{\"id\":1}".to_vec(),
            result: Vec::new(),
        }
    }

    fn stream() -> StreamBody {
        let id = |raw: &str, answered| StreamId { raw: raw.as_bytes().to_vec(), answered };
        StreamBody { tail: 9, ids: vec![id("1", true), id("\"b\"", false)] }
    }

    fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out);
        out
    }

    #[test]
    fn bodies_read_back() {
        let bytes = encoded(|out| session().encode(out));
        assert_eq!(SessionBody::decode(&bytes), Ok(session()));
        let bytes = encoded(|out| stream().encode(out));
        assert_eq!(StreamBody::decode(&bytes), Ok(stream()));
    }

    #[test]
    fn every_cut_is_short_and_every_further_byte_too_much() {
        let bodies = [encoded(|out| session().encode(out)), encoded(|out| stream().encode(out))];
        let decode = |body: usize, bytes: &[u8]| match body {
            0 => SessionBody::decode(bytes).err(),
            _ => StreamBody::decode(bytes).err(),
        };
        for (body, bytes) in bodies.iter().enumerate() {
            for cut in 0..bytes.len() {
                assert_eq!(decode(body, &bytes[..cut]), Some(BadBody::Short), "{body} at {cut}");
            }
            let longer = [bytes.as_slice(), b"x"].concat();
            assert_eq!(decode(body, &longer), Some(BadBody::Trailing));
        }
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        let mut bytes = encoded(|out| session().encode(out));
        bytes[18] = 2;
        assert_eq!(SessionBody::decode(&bytes), Err(BadBody::Code(2)));
        bytes[18] = 0;
        bytes[18 + 1 + 8 + 4 + 4] = 0xFF;
        assert_eq!(SessionBody::decode(&bytes), Err(BadBody::Text));
        let mut bytes = encoded(|out| stream().encode(out));
        bytes[12] = 3;
        assert_eq!(StreamBody::decode(&bytes), Err(BadBody::Code(3)));
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(StreamBody::decode(&bytes), Err(BadBody::Ids));
        let long = StreamId { raw: vec![b'1'; RPC_ID_BYTES_MAX + 1], answered: false };
        let bytes = encoded(|out| StreamBody { tail: 0, ids: vec![long] }.encode(out));
        assert_eq!(StreamBody::decode(&bytes), Err(BadBody::Ids));
    }
}
