//! The head of a response (RFC 9112, section 4; RFC 9110, section 15).
//!
//! A [`HeadWriter`] appends to the caller's output buffer, so that head and body leave in one
//! write. Invariants: a field value can never hold a CR, an LF or another control character,
//! whatever is passed in; exactly one framing is written, because the method that writes it ends
//! the head.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http::request::Version;

/// The interim answer to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Bytes that the usual head needs, session id and date included.
const HEAD_BYTES_USUAL: usize = 320;

macro_rules! statuses {
    ($($name:ident = $code:literal $reason:literal,)*) => {
        /// A status code (RFC 9110, section 15; 429 and 431: RFC 6585).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Status {
            $(
                #[doc = concat!("`", $code, " ", $reason, "`.")]
                $name = $code,
            )*
        }

        impl Status {
            /// The three-digit code.
            pub const fn code(self) -> u16 {
                self as u16
            }

            /// The reason phrase.
            pub const fn reason(self) -> &'static str {
                match self {
                    $(Self::$name => $reason,)*
                }
            }

            /// The whole status line with its CRLF.
            const fn line(self) -> &'static [u8] {
                match self {
                    $(Self::$name => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n").as_bytes(),)*
                }
            }
        }
    };
}

statuses! {
    Ok = 200 "OK",
    Accepted = 202 "Accepted",
    NoContent = 204 "No Content",
    BadRequest = 400 "Bad Request",
    Unauthorized = 401 "Unauthorized",
    Forbidden = 403 "Forbidden",
    NotFound = 404 "Not Found",
    MethodNotAllowed = 405 "Method Not Allowed",
    NotAcceptable = 406 "Not Acceptable",
    RequestTimeout = 408 "Request Timeout",
    Conflict = 409 "Conflict",
    Gone = 410 "Gone",
    ContentTooLarge = 413 "Content Too Large",
    UriTooLong = 414 "URI Too Long",
    UnsupportedMediaType = 415 "Unsupported Media Type",
    ExpectationFailed = 417 "Expectation Failed",
    TooManyRequests = 429 "Too Many Requests",
    FieldsTooLarge = 431 "Request Header Fields Too Large",
    InternalServerError = 500 "Internal Server Error",
    NotImplemented = 501 "Not Implemented",
    BadGateway = 502 "Bad Gateway",
    ServiceUnavailable = 503 "Service Unavailable",
    GatewayTimeout = 504 "Gateway Timeout",
    VersionNotSupported = 505 "HTTP Version Not Supported",
}

/// Starts a response head at the end of `out`.
pub fn head(out: &mut Vec<u8>, status: Status) -> HeadWriter<'_> {
    out.reserve(HEAD_BYTES_USUAL);
    out.extend_from_slice(status.line());
    HeadWriter { out, status, version: Version::Http11, close: false }
}

/// A response head in the making; [`length`](Self::length), [`chunked`](Self::chunked),
/// [`until_close`](Self::until_close) or [`no_body`](Self::no_body) completes it.
#[must_use = "a head is complete only with its framing"]
#[derive(Debug)]
pub struct HeadWriter<'o> {
    out: &'o mut Vec<u8>,
    status: Status,
    version: Version,
    close: bool,
}

impl<'o> HeadWriter<'o> {
    /// Adds a field. Control characters in `value` become spaces: a value from outside can neither
    /// add a field nor end the head.
    pub fn field(self, name: &'static str, value: &[u8]) -> Self {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        // No early exit, so that it compiles to a few vector instructions.
        if value.iter().fold(false, |found, &byte| found | is_control(byte)) {
            self.out.extend(value.iter().map(|&byte| if is_control(byte) { b' ' } else { byte }));
        } else {
            self.out.extend_from_slice(value);
        }
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Adds the `Content-Type` of a JSON body.
    pub fn json(self) -> Self {
        self.out.extend_from_slice(b"content-type: application/json\r\n");
        self
    }

    /// Adds the fields of an SSE stream: its type, and what keeps caches and proxies from holding
    /// events back.
    pub fn event_stream(self) -> Self {
        self.out.extend_from_slice(
            b"content-type: text/event-stream\r\n\
              cache-control: no-cache, no-transform\r\n\
              x-accel-buffering: no\r\n",
        );
        self
    }

    /// Adds `Date`; the text comes from a [`DateCache`].
    pub fn date(self, text: &[u8; 29]) -> Self {
        self.field("date", text)
    }

    /// Says for which version of the request this is (1.1 if not called): an HTTP/1.0 client is
    /// told when its connection lives on.
    pub fn to_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Says whether the connection ends after this response (RFC 9112, section 9.6).
    pub fn connection_close(mut self, close: bool) -> Self {
        self.close = close;
        self
    }

    /// Completes the head of a response whose body is `bytes` long (for `HEAD`: would be).
    pub fn length(self, bytes: u64) {
        let out = self.connection();
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Completes the head of a chunked response. Never for an HTTP/1.0 client, which cannot read
    /// one: that takes [`until_close`](Self::until_close).
    pub fn chunked(self) {
        self.connection().extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    }

    /// Completes the head of a response that ends with the connection: the only framing in which
    /// an HTTP/1.0 client can be sent a stream.
    pub fn until_close(self) {
        self.connection_close(true).connection().extend_from_slice(b"\r\n");
    }

    /// Completes the head of a response without a body.
    pub fn no_body(self) {
        // 204 carries no Content-Length (RFC 9110, section 8.6); elsewhere its absence would mean
        // a body up to the end of the connection.
        if self.status == Status::NoContent {
            self.connection().extend_from_slice(b"\r\n");
        } else {
            self.length(0);
        }
    }

    /// Writes `Connection` where the default of the client's version is not what will happen.
    fn connection(self) -> &'o mut Vec<u8> {
        match (self.close, self.version) {
            (true, _) => self.out.extend_from_slice(b"connection: close\r\n"),
            (false, Version::Http10) => self.out.extend_from_slice(b"connection: keep-alive\r\n"),
            (false, Version::Http11) => {}
        }
        self.out
    }
}

/// Whether a byte must not occur in a field value (RFC 9110, section 5.5).
fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

/// The text of `Date` (RFC 9110, section 5.6.7), formatted once a second.
#[derive(Clone, Debug)]
pub struct DateCache {
    second: u64,
    /// Always the text of `second`.
    text: [u8; 29],
}

/// The last second that the format can express: 9999-12-31 23:59:59.
const DATE_SECOND_MAX: u64 = 253_402_300_799;

impl DateCache {
    /// A cache that holds the epoch.
    pub fn new() -> Self {
        Self { second: 0, text: *b"Thu, 01 Jan 1970 00:00:00 GMT" }
    }

    /// The text for `now`. Before the epoch it is the epoch, after the year 9999 its last second.
    pub fn at(&mut self, now: SystemTime) -> &[u8; 29] {
        let second =
            now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(DATE_SECOND_MAX);
        if second != self.second {
            let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
            let mut text = [0; 29];
            // The format has a fixed width; were it ever longer, the old text would stay.
            if write!(text.as_mut_slice(), "{date}").is_ok() {
                (self.second, self.text) = (second, text);
            }
        }
        &self.text
    }
}

impl Default for DateCache {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_answer() {
        let text = written(|out| {
            head(out, Status::Ok)
                .json()
                .field("mcp-session-id", b"abc")
                .date(DateCache::new().at(UNIX_EPOCH + Duration::from_secs(784_111_777)))
                .length(17);
        });
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: abc\r\n\
             date: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 17\r\n\r\n"
        );
    }

    #[test]
    fn empty_answers() {
        assert_eq!(
            written(|out| head(out, Status::Accepted).no_body()),
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        );
        assert_eq!(
            written(|out| head(out, Status::NoContent).no_body()),
            "HTTP/1.1 204 No Content\r\n\r\n"
        );
    }

    #[test]
    fn stream_answers() {
        assert_eq!(
            written(|out| head(out, Status::Ok).event_stream().chunked()),
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
             cache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        assert_eq!(
            written(|out| head(out, Status::Ok).to_version(Version::Http10).until_close()),
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
        );
    }

    #[test]
    fn connection_is_named_where_it_differs_from_the_default() {
        let answer = |version, close| {
            written(|out| {
                head(out, Status::Ok).to_version(version).connection_close(close).length(0);
            })
        };
        assert!(!answer(Version::Http11, false).contains("connection"));
        assert!(answer(Version::Http11, true).contains("\r\nconnection: close\r\n"));
        assert!(answer(Version::Http10, false).contains("\r\nconnection: keep-alive\r\n"));
        assert!(answer(Version::Http10, true).contains("\r\nconnection: close\r\n"));
    }

    #[test]
    fn a_value_from_outside_stays_one_value() {
        let text = written(|out| {
            head(out, Status::Ok).field("x-a", b"1\r\nset-cookie: x\0\x7f\ty\xc3\xa9").no_body();
        });
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\nx-a: 1  set-cookie: x  \ty\u{e9}\r\ncontent-length: 0\r\n\r\n"
        );
    }

    #[test]
    fn status_lines() {
        assert_eq!(Status::FieldsTooLarge.code(), 431);
        assert_eq!(Status::FieldsTooLarge.reason(), "Request Header Fields Too Large");
        assert_eq!(Status::UriTooLong.line(), b"HTTP/1.1 414 URI Too Long\r\n");
    }

    #[test]
    fn date_follows_the_second_and_bears_any_clock() {
        let mut cache = DateCache::new();
        assert_eq!(cache.at(UNIX_EPOCH), b"Thu, 01 Jan 1970 00:00:00 GMT");
        let later = UNIX_EPOCH + Duration::from_millis(1_431_703_461_999);
        assert_eq!(cache.at(later), b"Fri, 15 May 2015 15:24:21 GMT");
        assert_eq!(cache.at(later + Duration::from_millis(1)), b"Fri, 15 May 2015 15:24:22 GMT");
        assert_eq!(cache.at(UNIX_EPOCH - Duration::from_secs(9)), b"Thu, 01 Jan 1970 00:00:00 GMT");
        let far = UNIX_EPOCH + Duration::from_secs(DATE_SECOND_MAX + 5);
        assert_eq!(cache.at(far), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
