//! One admin connection: one request, one answer (RFC 9112), by the parser and the writer that the
//! shards use.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::http::request::{self, Framing, Head, Method};
use crate::http::response::{self, Status};
use crate::limits::{ADMIN_BODY_BYTES_MAX, HEAD_BYTES_MAX};

use super::Admin;
use super::routes::{self, Answer};

/// What an answer may do in a browser: nothing. The page may run the script and use the style that
/// have this answer's nonce, and ask this listener.
fn content_security_policy(nonce: Option<&str>) -> String {
    let rest = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    match nonce {
        None => format!("default-src 'none'; {rest}"),
        Some(nonce) => format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
             img-src data:; connect-src 'self'; {rest}"
        ),
    }
}

/// Serves one request. What the peer does wrong ends its connection and nothing else.
pub(super) fn serve(admin: &Admin, mut socket: TcpStream) {
    let mut input = Vec::new();
    if let Ok(answer) = receive(admin, &mut socket, &mut input) {
        // Nobody is left to be told.
        let _ = send(&mut socket, answer);
    }
}

/// Reads the request and makes its answer.
fn receive(admin: &Admin, socket: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<Answer> {
    let head_bytes = loop {
        match request::parse(input) {
            Ok(Some(head)) => break head.len,
            Ok(None) if input.len() > HEAD_BYTES_MAX => {
                return Ok(Answer::refuse(Status::FieldsTooLarge, "the head is too large"));
            }
            Ok(None) => more(socket, input)?,
            Err(error) => return Ok(Answer::refuse(error.status(), error.reason())),
        }
    };
    let Ok(Some(head)) = request::parse(input) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if let Some(refusal) = refuse(admin, &head) {
        return Ok(refusal);
    }
    let wanted = match head.framing {
        Framing::None => 0,
        Framing::Length(bytes) if bytes <= ADMIN_BODY_BYTES_MAX as u64 => bytes as usize,
        Framing::Length(_) => {
            return Ok(Answer::refuse(Status::ContentTooLarge, "the body is too large"));
        }
        Framing::Chunked => {
            return Ok(Answer::refuse(Status::BadRequest, "the body needs a length"));
        }
    };
    let (method, path) = (head.method, head.path.to_owned());
    let query = head.query.unwrap_or_default().to_owned();
    while input.len() < head_bytes + wanted {
        more(socket, input)?;
    }
    let body = &input[head_bytes..head_bytes + wanted];
    if method == Method::Get && path == "/api/events" {
        super::events::serve(admin, socket)?;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    Ok(routes::answer(admin, method, &path, &query, body))
}

fn more(socket: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 8 * 1024];
    match socket.read(&mut buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        bytes => {
            input.extend_from_slice(&buffer[..bytes]);
            Ok(())
        }
    }
}

/// Who may not ask: a page under a rebound name, a page of another origin, somebody without the
/// token. Whether the process lives and is ready is for anybody to know.
fn refuse(admin: &Admin, head: &Head<'_>) -> Option<Answer> {
    if !admin.hosts.allows_host(head.host()) {
        return Some(Answer::refuse(Status::Forbidden, "this host is not served here"));
    }
    let host = head.host().unwrap_or_default();
    let is_own = |origin: &[u8]| {
        let authority = [&b"http://"[..], b"https://"].into_iter();
        authority.filter_map(|scheme| origin.strip_prefix(scheme)).any(|rest| rest == host)
    };
    if !head.fields("origin").all(is_own) {
        return Some(Answer::refuse(Status::Forbidden, "this origin is not allowed"));
    }
    let is_open = matches!(head.path, "/healthz" | "/readyz");
    if is_open || admin.token.is_none_or(|token| presented(head) == Some(token)) {
        return None;
    }
    let mut answer = Answer::refuse(Status::Unauthorized, "the admin token is missing or wrong");
    answer.challenge = true;
    Some(answer)
}

/// The hash of the token that came along: as a bearer (RFC 6750), or as the password of Basic
/// (RFC 7617), which a browser asks for.
fn presented(head: &Head<'_>) -> Option<blake3::Hash> {
    let value = head.field("authorization")?;
    let (scheme, credentials) = value.split_at(value.iter().position(|&byte| byte == b' ')?);
    let credentials = credentials.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(blake3::hash(credentials));
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = STANDARD.decode(credentials).ok()?;
    let colon = pair.iter().position(|&byte| byte == b':')?;
    Some(blake3::hash(&pair[colon + 1..]))
}

fn send(socket: &mut TcpStream, answer: Answer) -> io::Result<()> {
    let mut out = Vec::with_capacity(answer.body.len() + 512);
    let policy = content_security_policy(answer.nonce.as_deref());
    let mut head = response::head(&mut out, answer.status)
        .connection_close(true)
        .field("content-type", answer.content_type.as_bytes())
        .field("cache-control", b"no-store")
        .field("x-content-type-options", b"nosniff")
        .field("content-security-policy", policy.as_bytes());
    if answer.challenge {
        head = head.field("www-authenticate", b"Basic realm=\"gapless admin\", charset=\"UTF-8\"");
    }
    if !answer.allow.is_empty() {
        head = head.field("allow", answer.allow.as_bytes());
    }
    head.length(answer.body.len() as u64);
    out.extend_from_slice(&answer.body);
    socket.write_all(&out)
}
