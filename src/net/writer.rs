//! One stream on one connection: a cursor that reads the log.
//!
//! There is no queue here. The writer asks the session for bytes until it says wait, and writes
//! many events at once as one chunk.

use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tracing::info;

use crate::http::chunked;
use crate::http::sse;
use crate::limits::{HOT_TIME, WRITE_BYTES_MAX};
use crate::session::{RETRY_MS, Session, Step};
use crate::shard::Shard;
use crate::shard::live::{Live, Reader};
use crate::shard::timer::pause;
use crate::stream::Attached;
use crate::sys::tcp::Peek;

use super::handle::{Handle, Phase};
use super::socket::Socket;

/// Pause before acknowledgements are read again while too much is unconfirmed.
const RING_FULL_PAUSE: Duration = Duration::from_millis(5);

/// How a stream's response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With its terminator: the connection may live on.
    Whole,
    /// In the planned way: the connection ends with FIN.
    Planned,
    /// It broke, or lost its stream.
    Broken,
    /// It has not: there has been nothing to send for a while.
    Silent,
}

/// A response that carries a stream.
pub(super) struct Writer {
    /// The stream's session.
    pub(super) live: Rc<Live>,
    /// The stream.
    pub(super) stream: u32,
    /// This connection, as the session knows it.
    pub(super) reader: Rc<Reader>,
    chunked: bool,
    /// Whether the connection may serve another request after a response that ends whole.
    pub(super) reusable: bool,
    /// When its client's credentials end.
    until: Option<Instant>,
    /// Whether the peer's end is watched for; not while it has sent the next request already.
    watch: bool,
    /// The peer is gone, or the stream belongs to another connection.
    over: bool,
}

impl Writer {
    /// The connection of `handle` has attached; `output` holds the response's head and no more.
    pub(super) fn open(
        handle: Rc<Handle>,
        output: &mut Vec<u8>,
        live: Rc<Live>,
        stream: u32,
        attached: &Attached,
        (chunked, until): (bool, Option<Instant>),
    ) -> Self {
        let reader = live.add_reader(stream, handle, attached.generation);
        let over = false;
        let writer =
            Self { live, stream, reader, chunked, reusable: false, until, watch: true, over };
        let live = &writer.live;
        writer.chunk(output, |out, _| live.look(|session| session.prologue(stream, attached, out)));
        writer
    }

    /// Writes until the response ends or falls silent. At its end the reader still has to be
    /// removed; from its silence it goes on after [`Writer::wait_while_silent`].
    pub(super) async fn run(&mut self, socket: &mut Socket, output: &mut Vec<u8>) -> End {
        if !self.live.look(|session| session.may_open(self.stream)) && !self.wait_until_open().await
        {
            return End::Broken;
        }
        loop {
            if self.over {
                return End::Broken;
            }
            if output.capacity() == 0 {
                *output = socket.shard.pool.take();
            }
            if socket.handle.expired.replace(false) {
                self.chunk(output, |out, _| sse::comment(out, b""));
            }
            self.end_with_credentials(&socket.shard);
            let step = self.fill(output);
            let wrote = !output.is_empty();
            if wrote {
                socket.phase(Phase::Answering, None);
                if socket.write(output).await.is_err() {
                    return End::Broken;
                }
                self.live.handle_sent(&socket.shard);
            }
            match step {
                Step::Write => socket.shard.yielder.yield_now().await,
                Step::RingFull => {
                    self.live.read_acked(self.stream);
                    // Often the acknowledgements were there already and only had to be read.
                    if !wrote {
                        pause(RING_FULL_PAUSE).await;
                    }
                }
                Step::Wait => {
                    // No buffer is held meanwhile.
                    socket.shard.pool.give(std::mem::take(output));
                    let silence = socket.shard.limits.sse_keep_alive;
                    self.wait(socket, silence.min(HOT_TIME)).await;
                    if silence > HOT_TIME && socket.handle.expired.replace(false) {
                        self.live.rest();
                        return End::Silent;
                    }
                }
                Step::Load => {
                    if !Box::pin(self.live.load(&socket.shard, self.stream)).await {
                        return End::Broken;
                    }
                }
                Step::Finished => return End::Whole,
                Step::Planned => return End::Planned,
                Step::Stale => return End::Broken,
            }
        }
    }

    /// Whoever listens has to come back with good credentials, after what is logged by now. One
    /// that has lost its stream must not end that of the connection that has it.
    fn end_with_credentials(&mut self, shard: &Rc<Shard>) {
        let ended = self.until.take_if(|until| Instant::now() >= *until).is_some();
        if ended && !self.reader.handle.fenced.get() {
            let stream = self.stream;
            info!(session = %self.live.short, stream, "the credentials of a listener have ended");
            self.live.with(shard, |session, _, _| session.close_planned(stream));
        }
    }

    /// Waits until the client may learn of the stream; false: it never may, or has lost it.
    async fn wait_until_open(&self) -> bool {
        let handle = &self.reader.handle;
        loop {
            if self.live.look(|session| session.may_open(self.stream)) {
                return true;
            }
            if handle.fenced.get() || self.live.look(Session::log_failed) {
                return false;
            }
            handle.signal.raised().await;
            handle.signal.take();
        }
    }

    /// Puts what there is to send behind `output`, as one chunk, up to a write's size.
    fn fill(&self, output: &mut Vec<u8>) -> Step {
        let generation = self.reader.generation;
        let mut step = Step::Wait;
        self.chunk(output, |out, written| {
            while out.len() < WRITE_BYTES_MAX {
                let offset = written + out.len() as u64;
                step = self.live.transmit(self.stream, generation, offset, out);
                if step != Step::Write {
                    break;
                }
            }
        });
        if step == Step::Planned {
            self.chunk(output, |out, _| sse::retry(out, RETRY_MS));
        }
        if matches!(step, Step::Finished | Step::Planned) && self.chunked {
            output.extend_from_slice(chunked::LAST);
        }
        step
    }

    /// One chunk around whatever `content` appends; nothing where it appends nothing. `content`
    /// is also given the bytes written on the connection before `output`.
    fn chunk(&self, output: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>, u64)) {
        let written = self.reader.handle.out.get().written();
        if !self.chunked {
            return content(output, written);
        }
        let slot = output.len();
        output.extend_from_slice(&[0; chunked::HEAD_LEN]);
        let start = output.len();
        content(output, written);
        let length = output.len() - start;
        if length == 0 {
            output.truncate(slot);
            return;
        }
        let head = output[slot..].first_chunk_mut().expect("the slot was just made");
        chunked::fill_head(head, length);
        output.extend_from_slice(chunked::TAIL);
    }

    /// Waits through a silence up to the next keep-alive. Whatever ends it, [`Writer::run`] finds
    /// out.
    pub(super) fn wait_while_silent<'a>(
        &'a mut self,
        socket: &'a Socket,
    ) -> impl Future<Output = ()> + 'a {
        let silence = socket.shard.limits.sse_keep_alive;
        self.wait(socket, silence.saturating_sub(HOT_TIME))
    }

    /// Waits for something to send, for `time` to pass, or for the peer's end.
    /// An `async fn` would hold its arguments twice.
    fn wait<'a>(&'a mut self, socket: &'a Socket, time: Duration) -> impl Future<Output = ()> + 'a {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        socket.phase(Phase::Streaming, Some(left.map_or(time, |left| left.min(time))));
        async move {
            let handle = &*socket.handle;
            if self.watch {
                let mut readable = pin!(socket.readable());
                if handle.signal.or(readable.as_mut()).await.is_none() {
                    if handle.fenced.get() {
                        // The shutdown has ended it; nothing may be in flight when the socket
                        // closes.
                        let _ = readable.await;
                    }
                } else {
                    match socket.peek() {
                        Ok(Peek::Empty) => {}
                        Ok(Peek::Data) => self.watch = false,
                        Ok(Peek::Eof) | Err(_) => self.over = true,
                    }
                }
            } else {
                handle.signal.raised().await;
            }
            handle.signal.take();
            self.over |= handle.fenced.get();
        }
    }
}
