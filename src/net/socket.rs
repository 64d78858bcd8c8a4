//! Reading and writing one connection's socket, with the byte count kept.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use monoio::BufResult;
use monoio::buf::{IoBuf, IoBufMut, SliceMut};
use monoio::io::{AsyncReadRent, AsyncWriteRent, CancelableAsyncReadRent, Canceller};

use crate::limits::READ_BYTES_MAX;
use crate::shard::Shard;
use crate::sys::leash::Leashed;
use crate::sys::tcp::{self, How};

use super::handle::{Handle, Phase};

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// More bytes.
    More,
    /// The peer sends no more, or the connection is broken.
    End,
    /// The parked read was given up: nothing came for a while.
    Cooled,
}

/// What a read that can be given up ends with.
pub(super) type HotRead = BufResult<usize, SliceMut<Vec<u8>>>;

/// A connection's socket. It counts what it writes in its [`Handle`].
pub(super) struct Socket {
    pub(super) shard: Rc<Shard>,
    pub(super) handle: Rc<Handle>,
    stream: Leashed,
}

impl Socket {
    pub(super) fn new(shard: &Rc<Shard>, handle: Rc<Handle>, stream: Leashed) -> Self {
        Self { shard: Rc::clone(shard), handle, stream }
    }

    /// Sets what the deadline means and when it is.
    pub(super) fn phase(&self, phase: Phase, after: Option<Duration>) {
        self.handle.phase.set(phase);
        self.handle.expired.set(false);
        match after {
            Some(after) => self.shard.set_deadline(&self.handle, after),
            None => self.handle.timer.clear(),
        }
    }

    /// Reads more bytes behind `input`, which grows at most to `room` more.
    pub(super) async fn read(&mut self, input: &mut Vec<u8>, room: usize) -> Got {
        input.reserve(room.min(READ_BYTES_MAX));
        let (start, end) = (input.len(), input.capacity().min(input.len() + room));
        let slice = std::mem::take(input).slice_mut(start..end);
        let (read, slice) = self.stream.read(slice).await;
        *input = slice.into_inner();
        self.got(read)
    }

    /// As [`Socket::read`], but the wait can be given up without losing a
    /// byte. What it gives goes to [`Socket::got_while_hot`]: an `async fn` around both would be
    /// that much more of every connection's task.
    pub(super) fn read_while_hot(&mut self, input: &mut Vec<u8>) -> impl Future<Output = HotRead> {
        let canceller = Canceller::new();
        let handle = canceller.handle();
        self.handle.canceller.set(Some(canceller));
        input.reserve(READ_BYTES_MAX);
        let (start, end) = (input.len(), input.len() + READ_BYTES_MAX);
        self.stream.cancelable_read(std::mem::take(input).slice_mut(start..end), handle)
    }

    /// The end of [`Socket::read_while_hot`].
    pub(super) fn got_while_hot(&mut self, read: HotRead, input: &mut Vec<u8>) -> Got {
        self.handle.canceller.take();
        *input = read.1.into_inner();
        match read.0 {
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => Got::Cooled,
            read => self.got(read),
        }
    }

    fn got(&self, read: io::Result<usize>) -> Got {
        match read {
            Ok(0) | Err(_) => Got::End,
            Ok(bytes) => {
                self.shard.counters.bytes_read.add(bytes as u64);
                Got::More
            }
        }
    }

    /// Waits until there is something to read, with no buffer held.
    pub(super) fn readable(&self) -> impl Future<Output = io::Result<()>> + '_ {
        self.stream.readable(false)
    }

    /// Whether the peer has closed, without taking anything.
    pub(super) fn peek(&self) -> io::Result<tcp::Peek> {
        self.handle.reach(|socket| tcp::peek_eof(socket)).unwrap_or(Ok(tcp::Peek::Eof))
    }

    /// Writes all of `output` and empties it. The one place where bytes leave, so the count is
    /// exact. An error means that the connection is over.
    pub(super) async fn write(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        let mut done = 0;
        while done < output.len() {
            let slice = std::mem::take(output).slice(done..);
            let (written, slice) = self.stream.write(slice).await;
            *output = slice.into_inner();
            let bytes = match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => bytes,
                Err(error) => return Err(error),
            };
            done += bytes;
            self.handle.handle_written(bytes as u64);
            self.shard.counters.bytes_written.add(bytes as u64);
        }
        output.clear();
        Ok(())
    }

    /// Stops sending, so that the peer sees the end of what was written.
    pub(super) fn finish(&self) {
        self.handle.reach(|socket| tcp::shutdown(socket, How::Write));
    }

    /// Takes the descriptor out: no operation may be in flight.
    pub(super) fn into_stream(self) -> Leashed {
        self.stream
    }
}
