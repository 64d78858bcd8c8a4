//! The little of HTTP/1.1 that the checker speaks (RFC 9112), strict where the server is checked.
//!
//! Invariants: framing that is wrong is `InvalidData`, never skipped; an end inside of a message is
//! `UnexpectedEof`; so a fault of the server can be told from a connection that was cut.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// Bytes of a response head that are read before it is called broken.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one read of a client that is in no way slow.
pub const READ_BYTES: usize = 64 * 1024;
/// Silence after which a server hangs: several times its keep-alive interval.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where the requests go.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address of the server.
    pub address: SocketAddr,
    /// Path of the MCP endpoint.
    pub path: String,
}

impl Target {
    /// Reads `http://ADDRESS:PORT/PATH`; only addresses of this machine.
    pub fn parse(url: &str) -> Option<Self> {
        let (address, path) = url.strip_prefix("http://")?.split_once('/')?;
        let address: SocketAddr = address.parse().ok()?;
        address.ip().is_loopback().then(|| Self { address, path: format!("/{path}") })
    }

    /// A request of this method with the usual fields, these more lines (each with its line end),
    /// and a body.
    pub fn request(&self, method: &str, fields: &str, body: &str) -> Vec<u8> {
        let Self { address, path } = self;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{fields}");
        if method == "POST" {
            head += "Content-Type: application/json\r\n\
                     Accept: application/json, text/event-stream\r\n";
            head += &format!("Content-Length: {}\r\n", body.len());
        } else {
            head += "Accept: text/event-stream\r\n";
        }
        (head + "\r\n" + body).into_bytes()
    }
}

/// How the body of a response is framed.
#[derive(Debug)]
enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    /// Chunked; the bytes left of the current chunk with its line end, `None` before a size line.
    Chunked(Option<u64>),
    /// The last byte was read.
    Over,
}

/// The head of a response, and where its body stands.
#[derive(Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    fields: Vec<(String, String)>,
    framing: Framing,
}

impl Response {
    fn parse(head: &str) -> Option<Self> {
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        if words.next()? != "HTTP/1.1" {
            return None;
        }
        let status = words.next()?.parse().ok()?;
        let mut fields = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':')?;
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut response = Self { status, fields, framing: Framing::Over };
        response.framing =
            match (response.field("transfer-encoding"), response.field("content-length")) {
                (Some("chunked"), None) => Framing::Chunked(None),
                (None, Some(length)) => Framing::Length(length.parse().ok()?),
                (None, None) => Framing::Length(0),
                _ => return None,
            };
        Some(response)
    }

    /// The value of a field, by its name in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether the body is an event stream.
    pub fn is_event_stream(&self) -> bool {
        self.field("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// Moves payload from `held` to `out`.
    fn decode(&mut self, held: &mut Vec<u8>, out: &mut Vec<u8>) -> io::Result<()> {
        let mut at = 0;
        loop {
            let rest = held.get(at..).unwrap_or_default();
            match &mut self.framing {
                Framing::Over => break,
                Framing::Length(0) => self.framing = Framing::Over,
                Framing::Length(left) => {
                    let taken = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    out.extend(rest.iter().take(taken));
                    *left -= taken as u64;
                    at += taken;
                    if *left > 0 {
                        break;
                    }
                }
                Framing::Chunked(None) => {
                    let Some(end) = memchr::memmem::find(rest, b"\r\n") else { break };
                    let line = std::str::from_utf8(rest.get(..end).unwrap_or_default());
                    let size = line.ok().and_then(|line| u64::from_str_radix(line, 16).ok());
                    let size = size.ok_or_else(|| broken("a chunk's size line"))?;
                    at += end + 2;
                    self.framing = Framing::Chunked(Some(size));
                    if size == 0 {
                        // The last chunk: an empty trailer section has to follow.
                        let last = held.get(at..at + 2);
                        match last {
                            Some(b"\r\n") => at += 2,
                            Some(_) => return Err(broken("the end of the chunked body")),
                            None => {
                                at -= end + 2;
                                self.framing = Framing::Chunked(None);
                                break;
                            }
                        }
                        self.framing = Framing::Over;
                    }
                }
                Framing::Chunked(Some(0)) => match rest.get(..2) {
                    Some(b"\r\n") => {
                        at += 2;
                        self.framing = Framing::Chunked(None);
                    }
                    Some(_) => return Err(broken("the end of a chunk")),
                    None => break,
                },
                Framing::Chunked(Some(left)) => {
                    if rest.is_empty() {
                        break;
                    }
                    let taken = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    out.extend(rest.iter().take(taken));
                    *left -= taken as u64;
                    at += taken;
                }
            }
        }
        held.drain(..at);
        Ok(())
    }
}

/// One connection.
pub struct Connection {
    socket: TcpStream,
    /// Bytes that were read and not looked at.
    held: Vec<u8>,
}

impl Connection {
    /// Connects; `receive_buffer` in bytes makes a client that soon looks slow to its server.
    pub async fn open(target: &Target, receive_buffer: Option<u32>) -> io::Result<Self> {
        let socket = match target.address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        let socket = patient("connect", socket.connect(target.address)).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, held: Vec::new() })
    }

    /// Writes all of `bytes`.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        patient("write", self.socket.write_all(bytes)).await
    }

    /// Closes our side for writing: FIN.
    pub async fn half_close(&mut self) -> io::Result<()> {
        self.socket.shutdown().await
    }

    /// From now on closing is a reset.
    pub fn reset_when_dropped(&self) -> io::Result<()> {
        self.socket.set_zero_linger()
    }

    /// Closes with RST: what has not been read is thrown away.
    pub fn reset(self) {
        // Where it cannot be set the socket is closed all the same, with FIN.
        let _ = self.reset_when_dropped();
    }

    /// The head of the next response.
    pub async fn response(&mut self) -> io::Result<Response> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.held, b"\r\n\r\n") {
                let head: Vec<u8> = self.held.drain(..end + 4).take(end).collect();
                let head = String::from_utf8(head).map_err(|_| broken("a head"))?;
                return Response::parse(&head).ok_or_else(|| broken(&head));
            }
            if self.held.len() > HEAD_BYTES_MAX {
                return Err(broken("an endless head"));
            }
            self.read(READ_BYTES).await?;
        }
    }

    /// Appends the next payload to `out`, reading at most `read_max` bytes; false at the end.
    pub async fn payload(
        &mut self,
        response: &mut Response,
        read_max: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let before = out.len();
        loop {
            response.decode(&mut self.held, out)?;
            if out.len() > before {
                return Ok(true);
            }
            if matches!(response.framing, Framing::Over) {
                return Ok(false);
            }
            self.read(read_max).await?;
        }
    }

    /// The whole body of a response that is not endless.
    pub async fn body(&mut self, response: &mut Response) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        while self.payload(response, READ_BYTES, &mut out).await? {}
        Ok(out)
    }

    /// One request and its whole answer.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<(Response, Vec<u8>)> {
        self.send(request).await?;
        let mut response = self.response().await?;
        let body = self.body(&mut response).await?;
        Ok((response, body))
    }

    async fn read(&mut self, most: usize) -> io::Result<()> {
        let start = self.held.len();
        self.held.resize(start + most, 0);
        let room = self.held.get_mut(start..).unwrap_or_default();
        let read = patient("read", self.socket.read(room)).await;
        self.held.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            other => other.map(drop),
        }
    }
}

async fn patient<T>(what: &str, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => {
            Err(io::Error::new(ErrorKind::TimedOut, format!("{what}: {PATIENCE:?} of silence")))
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not HTTP: {what:?}"))
}

/// Whether the error says that the connection is gone, and not that the server did wrong.
pub fn is_cut(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    let kind = error.kind();
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunked() -> Response {
        Response::parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked").expect("a head")
    }

    /// However the bytes are split, the payload is the same.
    #[test]
    fn a_chunked_body_is_read_byte_by_byte() {
        let (mut response, mut held, mut out) = (chunked(), Vec::new(), Vec::new());
        for byte in b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nrest" {
            held.push(*byte);
            response.decode(&mut held, &mut out).expect("well framed");
        }
        assert_eq!(
            (out.as_slice(), held.as_slice()),
            (b"abc0123456789".as_slice(), b"rest".as_slice())
        );
        assert!(matches!(response.framing, Framing::Over));
    }

    #[test]
    fn wrong_framing_is_a_fault() {
        for wrong in ["3\r\nabcd\r\n", "x\r\n", "0\r\nab"] {
            let error = chunked().decode(&mut wrong.into(), &mut Vec::new()).expect_err(wrong);
            assert!(!is_cut(&error));
        }
    }
}
