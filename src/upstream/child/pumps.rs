//! The three pipes of a child. None waits for another, and each can be dropped at any await.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;

use futures_channel::mpsc::UnboundedReceiver;
use futures_util::StreamExt;
use monoio::net::UnixStream;

use super::ChildEvents;
use super::gate::Gate;
use crate::limits::LINE_OVERHEAD_BYTES;
use crate::sys::borrow::OwnsFd;
use crate::sys::pipe;

/// Bytes of one read, after which everybody else has a turn: what a pipe holds by default.
const CHUNK_BYTES: usize = 64 * 1024;
/// Lines that go out in one write.
const LINES_PER_WRITE: usize = 64;
/// Bytes that are read of a pipe whose child is gone but which somebody outside the group keeps
/// open: what the largest pipe holds (pipe(7), `pipe-max-size`), so all that the child wrote.
const REST_BYTES_MAX: usize = 1024 * 1024;

thread_local! {
    /// The one buffer into which a shard reads from all its children; taken out while it is used.
    static CHUNK: Cell<Box<[u8]>> = Cell::default();
}

/// Our end of stdout or stderr.
pub(super) struct Output {
    end: UnixStream,
}

/// What one read brought.
enum Turn {
    Bytes(usize),
    Empty,
    End,
}

impl Output {
    pub(super) fn new(end: UnixStream) -> Self {
        Self { end }
    }

    /// Hands over all that comes while `gate` is open, until every writer has closed the pipe.
    pub(super) async fn run(&mut self, gate: Option<&Gate>, take: &mut impl FnMut(&[u8])) {
        loop {
            if let Some(gate) = gate {
                gate.passed().await;
            }
            if let Err(error) = self.end.readable(false).await {
                tracing::warn!(%error, "cannot poll a child's output");
                return;
            }
            if let Turn::End = self.read(take) {
                return;
            }
        }
    }

    /// Hands over what is in the pipe, and waits for nothing.
    pub(super) fn rest(&mut self, take: &mut impl FnMut(&[u8])) {
        let mut bytes = 0;
        while let Turn::Bytes(more) = self.read(take) {
            bytes += more;
            if bytes >= REST_BYTES_MAX {
                return;
            }
        }
    }

    fn read(&mut self, take: &mut impl FnMut(&[u8])) -> Turn {
        let mut chunk = CHUNK.take();
        if chunk.is_empty() {
            chunk = vec![0; CHUNK_BYTES].into_boxed_slice();
        }
        let turn = match pipe::read(self.end.borrow_fd(), &mut chunk) {
            Ok(0) => Turn::End,
            Ok(bytes) => {
                take(&chunk[..bytes]);
                Turn::Bytes(bytes)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Turn::Empty,
            Err(error) => {
                tracing::warn!(%error, "cannot read a child's output");
                Turn::End
            }
        };
        CHUNK.set(chunk);
        turn
    }
}

/// Our end of stdin and what is to go there.
pub(super) struct Stdin {
    /// `None` once it is closed, by us or by the child.
    end: Option<UnixStream>,
    queue: UnboundedReceiver<Vec<u8>>,
    /// Taken from the queue and not yet written.
    batch: VecDeque<Vec<u8>>,
    /// Bytes of the batch's first line that are written.
    offset: usize,
    events: Rc<dyn ChildEvents>,
}

impl Stdin {
    pub(super) fn new(
        end: UnixStream,
        queue: UnboundedReceiver<Vec<u8>>,
        events: Rc<dyn ChildEvents>,
    ) -> Self {
        Self { end: Some(end), queue, batch: VecDeque::new(), offset: 0, events }
    }

    /// Writes what is queued until the queue is closed and empty; then stdin ends.
    pub(super) async fn run(&mut self) {
        while let Some(line) = self.queue.next().await {
            self.batch.push_back(line);
            while self.batch.len() < LINES_PER_WRITE
                && let Ok(line) = self.queue.try_recv()
            {
                self.batch.push_back(line);
            }
            self.flush().await;
        }
        self.end = None;
    }

    /// Bytes that were sent and will not be written, now that the child is gone.
    pub(super) fn lost(&mut self) -> usize {
        self.queue.close();
        while let Ok(line) = self.queue.try_recv() {
            self.batch.push_back(line);
        }
        self.discard()
    }

    async fn flush(&mut self) {
        while !self.batch.is_empty() {
            if let Err(error) = self.step().await {
                // Not the end of the child: it may have closed its stdin and still talk.
                tracing::debug!(%error, "a child takes no more input");
                self.end = None;
            }
        }
    }

    async fn step(&mut self) -> io::Result<()> {
        let Some(end) = &self.end else {
            let lost = self.discard();
            self.events.written(lost);
            return Ok(());
        };
        match self.write(end) {
            Ok(bytes) => {
                let lines = self.advance(bytes);
                self.events.written(bytes + lines * LINE_OVERHEAD_BYTES);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        // Others have a turn between two writes, even if the pipe would take more at once.
        match &self.end {
            Some(end) if !self.batch.is_empty() => end.writable(false).await,
            _ => Ok(()),
        }
    }

    fn write(&self, end: &UnixStream) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); LINES_PER_WRITE];
        for (slice, line) in slices.iter_mut().zip(&self.batch) {
            *slice = IoSlice::new(line);
        }
        if let Some(first) = slices.first_mut() {
            first.advance(self.offset);
        }
        pipe::write_vectored(end.borrow_fd(), &slices[..self.batch.len().min(LINES_PER_WRITE)])
    }

    /// So many bytes are written; returns how many lines that completes.
    fn advance(&mut self, bytes: usize) -> usize {
        self.offset += bytes;
        let before = self.batch.len();
        while let Some(first) = self.batch.front()
            && self.offset >= first.len()
        {
            self.offset -= first.len();
            self.batch.pop_front();
        }
        before - self.batch.len()
    }

    /// Throws the batch away and returns how many bytes of it were not written, as they are told.
    fn discard(&mut self) -> usize {
        let lines = self.batch.drain(..).map(|line| line.len() + LINE_OVERHEAD_BYTES);
        let bytes = lines.sum::<usize>();
        bytes - std::mem::take(&mut self.offset)
    }
}
