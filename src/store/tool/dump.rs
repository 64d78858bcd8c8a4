//! `gapless log dump`: one line a record.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use super::is_still;
use super::walk::{Found, Walk};
use crate::mcp::session_id::SessionId;
use crate::store::body::{SessionBody, StreamBody};
use crate::store::directory::{Layout, SegmentFile};
use crate::store::journal::Level;
use crate::store::meta::Meta;
use crate::store::record::{BURIED, FINISHED, Header, Kind};
use crate::store::segment::{BadSegment, SegmentHeader};

/// What is shown, and how much of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// Only this session: its id, or what logs call it.
    pub session: Option<String>,
    /// Only streams of this number.
    pub stream: Option<u32>,
    /// Bodies too: what servers and clients said.
    pub bodies: bool,
    /// Ids of sessions and cursors too: whoever has them can read those streams.
    pub secrets: bool,
}

/// The sessions of a shard by their slots.
type Sessions = HashMap<u32, SessionId>;

/// Writes the lines; tells whether everything could be read.
pub(super) fn run(
    layout: &Layout,
    meta: &Meta,
    what: &Dump,
    out: &mut impl Write,
) -> io::Result<bool> {
    let mut sound = true;
    for shard in 0..meta.shards {
        let segments = layout.segments(meta.generation, shard)?;
        // A session may be named behind its events: its birth goes with the oldest segment.
        let mut sessions = Sessions::new();
        for segment in &segments {
            sound &= name_sessions(segment, &mut sessions)?;
        }
        for segment in &segments {
            let name = segment.path.strip_prefix(layout.root()).unwrap_or(&segment.path);
            let lines = Lines { what, sessions: &sessions, name: name.display().to_string() };
            sound &= lines.segment(segment, out)?;
        }
    }
    Ok(sound)
}

fn name_sessions(segment: &SegmentFile, sessions: &mut Sessions) -> io::Result<bool> {
    let Some((mut walk, _)) = opened(segment)? else { return Ok(true) };
    while let Some((_, found)) = walk.next()? {
        if let Found::Record(header, body) = found
            && header.kind == Kind::Session
        {
            let Ok(session) = SessionBody::decode(body) else { return Ok(false) };
            sessions.insert(header.slot, session.id);
        }
    }
    Ok(true)
}

/// None where whoever holds the lock has just removed it.
fn opened(segment: &SegmentFile) -> io::Result<Option<(Walk, Result<SegmentHeader, BadSegment>)>> {
    match Walk::open(&segment.path, segment.number) {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

struct Lines<'d> {
    what: &'d Dump,
    sessions: &'d Sessions,
    /// Of the segment's file, from the directory on.
    name: String,
}

impl Lines<'_> {
    fn segment(&self, segment: &SegmentFile, out: &mut impl Write) -> io::Result<bool> {
        let name = &self.name;
        let Some((mut walk, header)) = opened(segment)? else {
            writeln!(out, "# {name} went while the log was read")?;
            return Ok(true);
        };
        let mut sound = header.is_ok();
        match header {
            Ok(header) => writeln!(out, "# {name}: {}", describe(&header, segment.bytes))?,
            Err(bad) => writeln!(out, "# {name}: no header of this segment: {bad:?}")?,
        }
        while let Some((at, found)) = walk.next()? {
            match found {
                Found::Record(header, body) if self.wanted(&header) => {
                    writeln!(out, "{name}:{at} {}", self.record(&header, body))?;
                }
                Found::Record(..) => {}
                Found::BadBody(header, bytes) => {
                    sound = false;
                    let line = self.head(&header);
                    writeln!(out, "{name}:{at} {line} DAMAGED: its {bytes} bytes have changed")?;
                }
                Found::Unreadable(bytes) => {
                    sound = false;
                    writeln!(out, "{name}:{at} DAMAGED: {bytes} bytes are no record")?;
                }
                Found::Rest { bytes, written } => {
                    let what = if written { "old or torn" } else { "never written" };
                    writeln!(out, "# {name}:{at}: the end; {bytes} bytes behind it are {what}")?;
                }
            }
        }
        if !is_still(&segment.path, walk.file()) {
            writeln!(out, "# {name} went while it was read: damage in it means nothing")?;
            return Ok(true);
        }
        Ok(sound)
    }

    fn wanted(&self, header: &Header) -> bool {
        if self.what.session.is_none() && self.what.stream.is_none() {
            return true;
        }
        let of_session = self.what.session.as_ref().is_none_or(|wanted| {
            is_of_session(header.kind)
                && self.sessions.get(&header.slot).is_some_and(|id| {
                    id.short().to_string() == *wanted || id.write() == wanted.as_bytes()
                })
        });
        let of_stream = self
            .what
            .stream
            .is_none_or(|wanted| is_of_stream(header.kind) && header.stream == wanted);
        of_session && of_stream
    }

    /// The kind, and whose it is.
    fn head(&self, header: &Header) -> String {
        let mut line = kind_name(header.kind).to_owned();
        if is_of_session(header.kind) {
            let _ = write!(line, " slot={}", header.slot);
            if let Some(id) = self.sessions.get(&header.slot) {
                let _ = write!(line, " session={}", id.short());
                if self.what.secrets {
                    let _ = write!(line, " id={}", String::from_utf8_lossy(&id.write()));
                }
            }
        }
        if is_of_stream(header.kind) {
            let _ = write!(line, " stream={}", header.stream);
        }
        line
    }

    fn record(&self, header: &Header, body: &[u8]) -> String {
        let mut line = self.head(header);
        let number = header.number;
        let _ = match header.kind {
            Kind::Session => self.session(&mut line, body),
            Kind::Setup => write!(line, " number={number} bytes={}", body.len()),
            Kind::Stream => self.stream(&mut line, header, body),
            Kind::Event => write!(line, " number={number} bytes={}", body.len()),
            Kind::Finish => write!(line, " tail={number}"),
            Kind::Floor => write!(line, " floor={number}"),
            Kind::Mark => write!(line, " synced={}:{}", number >> 32, number & 0xFFFF_FFFF),
            Kind::Clean => write!(line, " newest_segment={number}"),
            Kind::End | Kind::Seal => Ok(()),
        };
        if header.answers > 0 {
            let _ = write!(line, " answers={}", header.answers);
        }
        for (flag, name) in [(FINISHED, " finished"), (BURIED, " buried")] {
            if header.flags & flag != 0 {
                line.push_str(name);
            }
        }
        if self.what.bodies && matches!(header.kind, Kind::Setup | Kind::Event) {
            let _ = write!(line, " body={}", self.shown(body));
        }
        line
    }

    fn session(&self, line: &mut String, body: &[u8]) -> fmt::Result {
        let Ok(session) = SessionBody::decode(body) else { return meaningless(line) };
        write!(
            line,
            " server={} transport={:?} revision={:?} principal={:016x} next_stream={}",
            session.server,
            session.transport,
            session.revision,
            session.principal,
            session.next_stream
        )?;
        if self.what.bodies {
            let parts = [("initialize", &session.initialize), ("result", &session.result)];
            for (name, text) in parts {
                write!(line, " {name}={}", text.escape_ascii())?;
            }
        }
        if self.what.secrets && !session.endpoint.is_empty() {
            write!(line, " endpoint={:?}", session.endpoint)?;
        }
        Ok(())
    }

    fn stream(&self, line: &mut String, header: &Header, body: &[u8]) -> fmt::Result {
        let Ok(stream) = StreamBody::decode(body) else { return meaningless(line) };
        let answered = stream.ids.iter().filter(|id| id.answered).count();
        let requests = stream.ids.len();
        let (floor, tail) = (header.number, stream.tail);
        write!(line, " floor={floor} tail={tail} requests={requests} answered={answered}")?;
        if self.what.bodies {
            for id in &stream.ids {
                write!(line, " request={}", id.raw.escape_ascii())?;
            }
        }
        Ok(())
    }

    /// A body on one line, without the token of its event id unless secrets are asked for.
    fn shown(&self, body: &[u8]) -> String {
        let mut shown = String::with_capacity(body.len() + 16);
        for line in body.split_inclusive(|&byte| byte == b'\n') {
            match line.strip_prefix(b"id: ") {
                Some(id) if !self.what.secrets => {
                    let number = id.iter().rposition(|&byte| byte == b'.').map_or(0, |dot| dot);
                    let _ = write!(shown, "id: (hidden){}", id[number..].escape_ascii());
                }
                _ => {
                    let _ = write!(shown, "{}", line.escape_ascii());
                }
            }
        }
        shown
    }
}

fn meaningless(line: &mut String) -> fmt::Result {
    line.write_str(" DAMAGED: its body means nothing")
}

/// What a segment says of itself.
pub(super) fn describe(header: &SegmentHeader, bytes: u64) -> String {
    let created = UNIX_EPOCH.checked_add(Duration::from_secs(header.created));
    let created = created.map_or("at no known time".to_owned(), |time| {
        humantime::format_rfc3339_seconds(time).to_string()
    });
    format!(
        "epoch {}, level {}, boot {:032x}, made {created}, {bytes} bytes",
        header.epoch,
        level_name(header.level),
        u128::from_be_bytes(header.boot_id)
    )
}

/// The word of a level, as it is typed.
pub(super) fn level_name(level: Level) -> &'static str {
    match level {
        Level::None => "none",
        Level::Process => "process",
        Level::Power => "power",
    }
}

/// The word of a kind.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Session => "session",
        Kind::Setup => "setup",
        Kind::Stream => "stream",
        Kind::Event => "event",
        Kind::Finish => "finish",
        Kind::Floor => "floor",
        Kind::End => "end",
        Kind::Mark => "mark",
        Kind::Seal => "seal",
        Kind::Clean => "clean",
    }
}

/// Whether a record is of a session, and not of the log itself.
fn is_of_session(kind: Kind) -> bool {
    !matches!(kind, Kind::Mark | Kind::Seal | Kind::Clean)
}

/// Whether a record is of one stream of its session.
fn is_of_stream(kind: Kind) -> bool {
    matches!(kind, Kind::Stream | Kind::Event | Kind::Finish | Kind::Floor)
}
