//! The body of one request, read to its end and no further.

use std::ops::Range;

use tracing::warn;

use crate::http::chunked::{ChunkError, Decoder};
use crate::http::request::Framing;
use crate::http::response::{CONTINUE, Status};
use crate::limits::{READ_BYTES_MAX, WRITE_BYTES_MAX};
use crate::mcp::jsonrpc::codes;
use crate::shard::budget::{Charge, Of};

use super::answer::Answer;
use super::handle::Phase;
use super::request::Frame;
use super::socket::{Got, Socket};

/// A whole body, and what it takes of the shard's budget: drop it before a wait.
pub(super) struct Body {
    place: Place,
    _charge: Option<Charge>,
}

enum Place {
    /// It stands in the input.
    Inline(Range<usize>),
    /// It was chunked; so much of the input was used.
    Decoded(Vec<u8>, usize),
}

/// Why there is no body.
pub(super) enum BodyError {
    /// The connection is over.
    Gone,
    /// It is refused with this answer, and the connection closes.
    Refused(Answer),
}

impl Body {
    /// The body, if it is in `input` whole behind its head and is not chunked.
    pub(super) fn find(socket: &Socket, input: &[u8], frame: &Frame) -> Option<Self> {
        let head = frame.head_bytes;
        let bytes = match frame.framing {
            Framing::None => 0,
            Framing::Length(bytes) => usize::try_from(bytes).ok()?,
            Framing::Chunked => return None,
        };
        let fits = bytes <= socket.shard.limits.body_bytes;
        (fits && input.len() - head >= bytes).then(|| Self::inline(head..head + bytes, None))
    }

    fn inline(range: Range<usize>, charge: Option<Charge>) -> Self {
        Self { place: Place::Inline(range), _charge: charge }
    }

    /// Reads the body behind the head at the start of `input`.
    pub(super) async fn read(
        socket: &mut Socket,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
        frame: &Frame,
    ) -> Result<Self, BodyError> {
        let head = frame.head_bytes;
        match frame.framing {
            Framing::None => Ok(Self::inline(head..head, None)),
            Framing::Length(bytes) => {
                let most = socket.shard.limits.body_bytes;
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                if bytes > most {
                    return Err(too_large());
                }
                let end = head + bytes;
                let charge = Charge::new(&socket.shard.budget, Of::Transit);
                if end > WRITE_BYTES_MAX && !socket.shard.budget.has_room_for(end as u64) {
                    return Err(no_room(socket, end));
                }
                if input.len() < end {
                    invite(socket, output, frame).await?;
                }
                while input.len() < end {
                    let room = end - input.len();
                    grow(socket, &charge, input, end)?;
                    more(socket, input, room).await?;
                }
                Ok(Self::inline(head..end, Some(charge)))
            }
            Framing::Chunked => decode(socket, input, output, frame).await,
        }
    }

    /// The bytes; `input` is what [`Body::read`] left.
    pub(super) fn bytes<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match &self.place {
            Place::Inline(range) => input.get(range.clone()).unwrap_or_default(),
            Place::Decoded(bytes, _) => bytes,
        }
    }

    /// Bytes of the input that the request took, head included.
    pub(super) fn consumed(&self) -> usize {
        match &self.place {
            Place::Inline(range) => range.end,
            Place::Decoded(_, consumed) => *consumed,
        }
    }
}

async fn decode(
    socket: &mut Socket,
    input: &mut Vec<u8>,
    output: &mut Vec<u8>,
    frame: &Frame,
) -> Result<Body, BodyError> {
    let head = frame.head_bytes;
    let most = socket.shard.limits.body_bytes;
    let mut decoder = Decoder::new();
    let mut decoded = Vec::new();
    let mut invited = false;
    let charge = Charge::new(&socket.shard.budget, Of::Transit);
    loop {
        let rest = input.get(head..).unwrap_or_default();
        let progress = match decoder.decode(rest, &mut decoded, most) {
            Ok(progress) => progress,
            Err(ChunkError::TooLarge) => return Err(too_large()),
            Err(error) => {
                let code = codes::INVALID_REQUEST;
                let answer = Answer::error(Status::BadRequest, None, code, &error.to_string());
                return Err(BodyError::Refused(answer));
            }
        };
        let capacity = decoded.capacity();
        if capacity > WRITE_BYTES_MAX {
            take(socket, &charge, capacity)?;
        }
        if progress.done {
            let place = Place::Decoded(decoded, head + progress.consumed);
            return Ok(Body { place, _charge: Some(charge) });
        }
        // What is decoded is not kept twice.
        input.drain(head..head + progress.consumed);
        if !invited {
            invited = true;
            invite(socket, output, frame).await?;
        }
        more(socket, input, READ_BYTES_MAX).await?;
    }
}

/// Makes room in `input` for the next read of a body that ends at `end`. What fits into a pooled
/// buffer costs nothing more; above that each step is taken from the budget first.
fn grow(
    socket: &Socket,
    charge: &Charge,
    input: &mut Vec<u8>,
    end: usize,
) -> Result<(), BodyError> {
    let next = input.len() + (end - input.len()).min(READ_BYTES_MAX);
    if next <= input.capacity() || end <= WRITE_BYTES_MAX {
        return Ok(());
    }
    let capacity = next.max(2 * input.capacity()).min(end);
    take(socket, charge, capacity)?;
    input.reserve_exact(capacity - input.len());
    Ok(())
}

/// Takes so many bytes from the budget in place of what `charge` holds.
fn take(socket: &Socket, charge: &Charge, bytes: usize) -> Result<(), BodyError> {
    if !charge.admit(bytes as u64) {
        return Err(no_room(socket, bytes));
    }
    socket.shard.relieve_if_due();
    Ok(())
}

/// Sends what is waiting, and `100 Continue` where the client waits for it.
async fn invite(socket: &mut Socket, output: &mut Vec<u8>, frame: &Frame) -> Result<(), BodyError> {
    if frame.expect_continue {
        output.extend_from_slice(CONTINUE);
    }
    if output.is_empty() {
        return Ok(());
    }
    socket.write(output).await.map_err(|_| BodyError::Gone)
}

async fn more(socket: &mut Socket, input: &mut Vec<u8>, room: usize) -> Result<(), BodyError> {
    socket.phase(Phase::Receiving, Some(socket.shard.limits.head_timeout));
    match socket.read(input, room).await {
        Got::More => Ok(()),
        _ if socket.handle.expired.get() => {
            let reason = "the request body did not come in time";
            let code = codes::INVALID_REQUEST;
            let answer = Answer::error(Status::RequestTimeout, None, code, reason);
            Err(BodyError::Refused(answer))
        }
        _ => Err(BodyError::Gone),
    }
}

/// The request may come again when others have gone.
fn no_room(socket: &Socket, bytes: usize) -> BodyError {
    let shard = &socket.shard;
    shard.counters.bodies_refused.increment();
    if shard.may_log() {
        let transit = shard.budget.transit();
        warn!(bytes, transit, "a body was refused: there is no room for it in the budget");
    }
    let reason = "the server has no room for a body of this size just now";
    let code = codes::SERVER_ERROR;
    BodyError::Refused(Answer::error(Status::ServiceUnavailable, None, code, reason))
}

fn too_large() -> BodyError {
    let reason = "the body is larger than this server takes";
    let code = codes::INVALID_REQUEST;
    BodyError::Refused(Answer::error(Status::ContentTooLarge, None, code, reason))
}
