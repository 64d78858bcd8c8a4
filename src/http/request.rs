//! The head of an HTTP/1.x request: request line and fields (RFC 9112, sections 2 to 6).
//!
//! httparse does the lexical work; this module demands what it leaves open (CRLF line ends, one
//! framing, one `Host`) and reads the fields that HTTP itself gives a meaning to.
//!
//! Invariants:
//! * A [`Head`] has exactly one [`Framing`]; whatever is ambiguous is a [`HeadError`], after which
//!   the connection must be closed, because where the next request starts is unknown.
//! * Every prefix of a head is `Ok(None)` or the error of the whole.
//! * Nothing is allocated, and at most [`HEAD_BYTES_MAX`] bytes are looked at.

use std::mem::MaybeUninit;

use crate::http::response::Status;
use crate::limits::{HEAD_BYTES_MAX, HEAD_FIELDS_MAX};

/// Empty lines before a request line that are skipped; a client that ends a body with a CRLF too
/// many (RFC 9112, section 2.2) sends one.
const LEADING_EMPTY_LINES_MAX: usize = 4;

/// The positions of a [`Span`] are 16-bit.
const _: () = assert!(HEAD_BYTES_MAX <= u16::MAX as usize);

/// The request method (RFC 9110, section 9), as far as anything here tells methods apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `DELETE`.
    Delete,
    /// `HEAD`: answered as `GET`, without the body.
    Head,
    /// `OPTIONS`.
    Options,
    /// `PUT`.
    Put,
    /// Any other token.
    Other,
}

/// The protocol version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `HTTP/1.0`: no chunked coding, and the connection ends unless the client asks otherwise.
    Http10,
    /// `HTTP/1.1`.
    Http11,
}

/// How the end of a request's body is found (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// The body is this many bytes.
    Length(u64),
    /// The body is chunked: see [`chunked::Decoder`](crate::http::chunked::Decoder).
    Chunked,
}

/// Why a request head is refused. Each ends the connection after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// Not an HTTP request line.
    RequestLine,
    /// A head whose method alone exceeds [`HEAD_BYTES_MAX`].
    MethodTooLong,
    /// A request target that is no origin-form, absolute-form or `*` (RFC 9112, section 3.2).
    Target,
    /// A head whose request target alone exceeds [`HEAD_BYTES_MAX`].
    TargetTooLong,
    /// An HTTP version other than 1.0 and 1.1, the preface of HTTP/2 among them.
    Version,
    /// A field line that breaks the grammar: a space before the colon, an obsolete line fold, a
    /// control character, a bare CR.
    Field,
    /// A line that ends with a bare LF, or too many empty lines before the request line.
    LineEnd,
    /// More than [`HEAD_BYTES_MAX`] bytes.
    TooLarge,
    /// More than [`HEAD_FIELDS_MAX`] fields.
    TooManyFields,
    /// `Host` missing in HTTP/1.1, given twice, or malformed (RFC 9112, section 3.2).
    Host,
    /// A `Content-Length` that is no number, or several that differ.
    ContentLength,
    /// `Transfer-Encoding` beside `Content-Length`, in HTTP/1.0, or without `chunked` once and at
    /// its end, so that the body has no end that two readers agree on.
    TransferEncoding,
    /// A transfer coding other than `chunked`, inside it.
    UnknownCoding,
    /// An expectation other than `100-continue` (RFC 9110, section 10.1.1).
    Expectation,
}

impl HeadError {
    /// The status to answer with.
    pub const fn status(self) -> Status {
        match self {
            Self::RequestLine
            | Self::Target
            | Self::Field
            | Self::LineEnd
            | Self::Host
            | Self::ContentLength
            | Self::TransferEncoding => Status::BadRequest,
            Self::TargetTooLong => Status::UriTooLong,
            Self::TooLarge | Self::TooManyFields => Status::FieldsTooLarge,
            Self::Version => Status::VersionNotSupported,
            // A method longer than any that is known: RFC 9112, section 3.
            Self::UnknownCoding | Self::MethodTooLong => Status::NotImplemented,
            Self::Expectation => Status::ExpectationFailed,
        }
    }

    /// One sentence for the log and the answer's body; it repeats nothing of the request.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::RequestLine => "not an HTTP/1.1 request line",
            Self::MethodTooLong => "no method is that long",
            Self::Target => "the request target is malformed",
            Self::TargetTooLong => "the request target is too long",
            Self::Version => "only HTTP/1.1 and HTTP/1.0 are served here",
            Self::Field => "a header field is malformed",
            Self::LineEnd => "lines of a request head end with CRLF",
            Self::TooLarge => "the request head is too large",
            Self::TooManyFields => "the request has too many header fields",
            Self::Host => "exactly one valid Host is needed",
            Self::ContentLength => "Content-Length is malformed or contradicts itself",
            Self::TransferEncoding => "Transfer-Encoding is ambiguous",
            Self::UnknownCoding => "no transfer coding but chunked is implemented",
            Self::Expectation => "no expectation but 100-continue can be met",
        }
    }
}

/// Where one field lies in the head: a quarter of httparse's `Header`, so that a [`Head`] is cheap
/// to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    name: u16,
    name_len: u16,
    value: u16,
    value_len: u16,
}

/// A complete request head, borrowed from the read buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head<'b> {
    /// The method.
    pub method: Method,
    /// The path as sent, still percent-encoded: starts with `/`, or is the `*` of `OPTIONS`.
    pub path: &'b str,
    /// What follows the first `?` of the target.
    pub query: Option<&'b str>,
    /// The authority of a target in absolute-form; it then replaces `Host` (RFC 9112, section
    /// 3.2.2).
    pub authority: Option<&'b str>,
    /// The version.
    pub version: Version,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the client lets the connection live after this request (RFC 9112, section 9.3).
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// Bytes of the head in the buffer, skipped empty lines and the final empty line included.
    pub len: usize,
    host: Option<&'b [u8]>,
    bytes: &'b [u8],
    spans: [Span; HEAD_FIELDS_MAX],
    span_count: usize,
}

impl<'b> Head<'b> {
    /// The value of the first field with this name, white space around it removed. Names match
    /// without regard to ASCII case.
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        self.fields(name).next()
    }

    /// The values of all fields with this name, in order.
    pub fn fields(&self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        let bytes = self.bytes;
        self.spans.iter().take(self.span_count).filter_map(move |span| {
            if usize::from(span.name_len) != name.len() {
                return None;
            }
            slice(bytes, span.name, span.name_len)
                .eq_ignore_ascii_case(name.as_bytes())
                .then(|| slice(bytes, span.value, span.value_len))
        })
    }

    /// The host (and port) that the client meant: the authority of an absolute-form target, else
    /// `Host`. Absent only in HTTP/1.0; empty where the client has no name for the server.
    pub fn host(&self) -> Option<&'b [u8]> {
        self.authority.map(str::as_bytes).or(self.host)
    }
}

/// `bytes[start..start + len]`; spans are made from slices of the same bytes, so nothing is lost.
fn slice(bytes: &[u8], start: u16, len: u16) -> &[u8] {
    let start = usize::from(start);
    bytes.get(start..start + usize::from(len)).unwrap_or_default()
}

/// Reads one request head from the start of `buf`.
///
/// `Ok(None)` means that more bytes are needed. `buf` may go on behind the head.
///
/// # Errors
/// A [`HeadError`], as soon as the bytes cannot become an acceptable head: the first one in the
/// order of the bytes for what breaks the grammar, and for a complete head what its fields say.
pub fn parse(buf: &[u8]) -> Result<Option<Head<'_>>, HeadError> {
    // Never look past the bound: an error behind it must not depend on how much was read at once.
    let window = buf.get(..HEAD_BYTES_MAX).unwrap_or(buf);
    let Some(skipped) = skip_empty_lines(window)? else { return Ok(None) };
    let bytes = window.get(skipped..).unwrap_or_default();

    let mut slots = [const { MaybeUninit::uninit() }; HEAD_FIELDS_MAX];
    let mut raw = httparse::Request::new(&mut []);
    match raw.parse_with_uninit_headers(bytes, &mut slots) {
        Ok(httparse::Status::Complete(len)) => {
            let bytes = bytes.get(..len).unwrap_or_default();
            interpret(bytes, &raw, skipped + len).map(Some)
        }
        Ok(httparse::Status::Partial) if buf.len() <= HEAD_BYTES_MAX => Ok(None),
        Ok(httparse::Status::Partial) if raw.method.is_none() => Err(HeadError::MethodTooLong),
        Ok(httparse::Status::Partial) if raw.path.is_none() => Err(HeadError::TargetTooLong),
        Ok(httparse::Status::Partial) => Err(HeadError::TooLarge),
        Err(error) => Err(refine(error, bytes, &raw)),
    }
}

/// The number of bytes of empty lines at the start; `None` if there is nothing else yet.
fn skip_empty_lines(window: &[u8]) -> Result<Option<usize>, HeadError> {
    let mut rest = window;
    let mut lines = 0;
    loop {
        match rest {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', behind @ ..] if lines < LEADING_EMPTY_LINES_MAX => {
                lines += 1;
                rest = behind;
            }
            [b'\r' | b'\n', ..] => return Err(HeadError::LineEnd),
            _ => return Ok(Some(lines * 2)),
        }
    }
}

/// Our name for httparse's error.
fn refine(error: httparse::Error, bytes: &[u8], raw: &httparse::Request<'_, '_>) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => HeadError::Field,
        httparse::Error::NewLine => HeadError::LineEnd,
        httparse::Error::Version => {
            // `HTTP/2.0` is a version that is not served; `FTP/1.1` is no HTTP at all.
            let behind_target = raw.path.and_then(|path| {
                let end = position(bytes, path.as_bytes()) + path.len();
                bytes.get(end + 1..)
            });
            match behind_target {
                Some(version) if version.starts_with(b"HTTP/") => HeadError::Version,
                _ => HeadError::RequestLine,
            }
        }
        _ => HeadError::RequestLine,
    }
}

/// Where `part`, a slice of `bytes`, begins in it.
fn position(bytes: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize)
}

/// Gives a lexically complete head its meaning, in one pass over the fields.
fn interpret<'b>(
    bytes: &'b [u8],
    raw: &httparse::Request<'_, 'b>,
    len: usize,
) -> Result<Head<'b>, HeadError> {
    let (Some(method), Some(target), Some(minor)) = (raw.method, raw.path, raw.version) else {
        return Err(HeadError::RequestLine);
    };
    let method = self::method(method);
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let target = self::target(method, target)?;

    let mut spans = [Span::default(); HEAD_FIELDS_MAX];
    let mut known = Known::default();
    for (span, field) in spans.iter_mut().zip(raw.headers.iter()) {
        let name = position(bytes, field.name.as_bytes());
        // httparse takes a bare LF for a line end, other parsers do not: RFC 9112, section 2.2.
        if bytes.get(name.wrapping_sub(2)..name) != Some(b"\r\n") {
            return Err(HeadError::LineEnd);
        }
        // No cast truncates: every position is below HEAD_BYTES_MAX.
        *span = Span {
            name: name as u16,
            name_len: field.name.len() as u16,
            value: position(bytes, field.value) as u16,
            value_len: field.value.len() as u16,
        };
        known.take(field.name, field.value)?;
    }
    if !bytes.ends_with(b"\r\n\r\n") {
        return Err(HeadError::LineEnd);
    }
    if version == Version::Http11 && known.host.is_none() {
        return Err(HeadError::Host);
    }
    Ok(Head {
        method,
        path: target.path,
        query: target.query,
        authority: target.authority,
        version,
        framing: known.framing(version)?,
        keep_alive: known.keep_alive(version),
        // A 1.0 client cannot mean it: RFC 9110, section 10.1.1.
        expect_continue: known.expect_continue && version == Version::Http11,
        len,
        host: known.host,
        bytes,
        spans,
        span_count: raw.headers.len(),
    })
}

/// The method of a token; tokens are case-sensitive (RFC 9110, section 9.1).
fn method(token: &str) -> Method {
    match token {
        "POST" => Method::Post,
        "GET" => Method::Get,
        "DELETE" => Method::Delete,
        "HEAD" => Method::Head,
        "OPTIONS" => Method::Options,
        "PUT" => Method::Put,
        _ => Method::Other,
    }
}

/// The parts of a request target.
struct Target<'b> {
    path: &'b str,
    query: Option<&'b str>,
    authority: Option<&'b str>,
}

/// Splits a request target (RFC 9112, section 3.2). httparse has already refused control
/// characters and spaces.
fn target(method: Method, raw: &str) -> Result<Target<'_>, HeadError> {
    // A fragment is not part of any form, and one reader's path would be another's fragment.
    if !raw.is_ascii() || memchr::memchr(b'#', raw.as_bytes()).is_some() {
        return Err(HeadError::Target);
    }
    let (authority, rest) = if raw.starts_with('/') {
        (None, raw)
    } else if raw == "*" && method == Method::Options {
        return Ok(Target { path: raw, query: None, authority: None });
    } else {
        let behind = behind_scheme(raw).ok_or(HeadError::Target)?;
        let end = behind.find(['/', '?']).unwrap_or(behind.len());
        let (authority, rest) = behind.split_at(end);
        // User information in an authority is refused: RFC 9110, section 4.2.4.
        if authority.is_empty() || !is_host(authority.as_bytes()) {
            return Err(HeadError::Target);
        }
        (Some(authority), rest)
    };
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    Ok(Target { path: if path.is_empty() { "/" } else { path }, query, authority })
}

/// What follows `http://` or `https://`.
fn behind_scheme(raw: &str) -> Option<&str> {
    let (scheme, behind) = raw.split_once("://")?;
    let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    known.then_some(behind)
}

/// Whether every byte may occur in `uri-host [":" port]` (RFC 3986, section 3.2). A comma may by
/// the grammar, but is how two joined `Host` fields look.
fn is_host(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(byte))
}

/// What the fields say that HTTP itself reads.
#[derive(Default)]
struct Known<'b> {
    host: Option<&'b [u8]>,
    length: Option<u64>,
    chunked: bool,
    /// A transfer coding other than `chunked`.
    unknown_coding: bool,
    close: bool,
    persist: bool,
    expect_continue: bool,
}

impl<'b> Known<'b> {
    /// Takes one field in. The length of the name decides which name it can be at all.
    fn take(&mut self, name: &str, value: &'b [u8]) -> Result<(), HeadError> {
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => self.take_host(value),
            6 if name.eq_ignore_ascii_case("expect") => self.take_expect(value),
            10 if name.eq_ignore_ascii_case("connection") => {
                self.take_connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case("content-length") => self.take_length(value),
            17 if name.eq_ignore_ascii_case("transfer-encoding") => self.take_coding(value),
            _ => Ok(()),
        }
    }

    fn take_host(&mut self, value: &'b [u8]) -> Result<(), HeadError> {
        if self.host.replace(value).is_some() || !is_host(value) {
            return Err(HeadError::Host);
        }
        Ok(())
    }

    fn take_expect(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(HeadError::Expectation);
        }
        self.expect_continue = true;
        Ok(())
    }

    fn take_connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.persist |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn take_length(&mut self, value: &[u8]) -> Result<(), HeadError> {
        let length = super::decimal(value).ok_or(HeadError::ContentLength)?;
        match self.length.replace(length) {
            Some(other) if other != length => Err(HeadError::ContentLength),
            _ => Ok(()),
        }
    }

    /// Several lines are one list (RFC 9110, section 5.3).
    fn take_coding(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if self.chunked {
            return Err(HeadError::TransferEncoding);
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.chunked = true;
            return Ok(());
        }
        let codings = list(value).count();
        match list(value).position(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
            Some(at) if at + 1 < codings || codings == 1 => Err(HeadError::TransferEncoding),
            None if codings == 0 => Err(HeadError::TransferEncoding),
            chunked => {
                self.chunked = chunked.is_some();
                self.unknown_coding = true;
                Ok(())
            }
        }
    }

    fn framing(&self, version: Version) -> Result<Framing, HeadError> {
        match (self.chunked, self.length) {
            // A request whose last coding is another one has no end: RFC 9112, section 6.3.
            (false, _) if self.unknown_coding => Err(HeadError::TransferEncoding),
            (true, Some(_)) => Err(HeadError::TransferEncoding),
            (true, None) if version == Version::Http10 => Err(HeadError::TransferEncoding),
            (true, None) if self.unknown_coding => Err(HeadError::UnknownCoding),
            (true, None) => Ok(Framing::Chunked),
            (false, Some(0)) | (false, None) => Ok(Framing::None),
            (false, Some(length)) => Ok(Framing::Length(length)),
        }
    }

    fn keep_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.persist)
    }
}

/// The elements of a comma-separated field value that are not empty (RFC 9110, section 5.6.1).
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests;
