//! One stream on one connection: a cursor that reads the log.
//!
//! There is no queue here. The writer asks the session for bytes until it says wait, and writes
//! many events at once as one chunk.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use crate::http::chunked;
use crate::http::request::Version;
use crate::http::sse;
use crate::limits::WRITE_BYTES_MAX;
use crate::session::{RETRY_MS, Step};
use crate::shard::live::{Live, Reader};
use crate::shard::timer::pause;
use crate::stream::Attached;
use crate::sys::tcp::Peek;

use super::handle::Phase;
use super::request::Frame;
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
}

/// A response that carries a stream.
pub(super) struct Writer<'c> {
    socket: &'c mut Socket,
    output: &'c mut Vec<u8>,
    live: Rc<Live>,
    stream: u32,
    reader: Rc<Reader>,
    chunked: bool,
    /// Whether the peer's end is watched for; not while it has sent the next request already.
    watch: bool,
}

impl<'c> Writer<'c> {
    /// The connection has attached; `output` holds the response's head and no more.
    pub(super) fn new(
        socket: &'c mut Socket,
        output: &'c mut Vec<u8>,
        live: Rc<Live>,
        stream: u32,
        attached: &Attached,
        frame: &Frame,
    ) -> Self {
        let handle = Rc::clone(&socket.handle);
        let reader = live.add_reader(stream, handle, attached.generation);
        let chunked = frame.version == Version::Http11;
        let mut writer = Self { socket, output, live, stream, reader, chunked, watch: true };
        let live = Rc::clone(&writer.live);
        writer.chunk(|out, _| live.look(|session| session.prologue(stream, attached, out)));
        writer
    }

    /// Writes until the response ends; then the reader still has to be removed.
    pub(super) async fn run(mut self) -> (End, Rc<Live>, u32, Rc<Reader>) {
        let end = self.write_all().await;
        (end, self.live, self.stream, self.reader)
    }

    async fn write_all(&mut self) -> End {
        loop {
            let step = self.fill();
            let wrote = !self.output.is_empty();
            if wrote {
                self.socket.phase(Phase::Answering, None);
                if self.socket.write(self.output).await.is_err() {
                    return End::Broken;
                }
                self.live.handle_sent(&self.socket.shard);
            }
            match step {
                Step::Write => self.socket.shard.yielder.yield_now().await,
                Step::RingFull => {
                    self.live.read_acked(self.stream);
                    // Often the acknowledgements were there already and only had to be read.
                    if !wrote {
                        pause(RING_FULL_PAUSE).await;
                    }
                }
                Step::Wait => {
                    if !self.wait().await {
                        return End::Broken;
                    }
                }
                Step::Finished => return End::Whole,
                Step::Planned => return End::Planned,
                Step::Stale => return End::Broken,
            }
        }
    }

    /// Puts what there is to send behind `output`, as one chunk, up to a write's size.
    fn fill(&mut self) -> Step {
        let (live, stream) = (Rc::clone(&self.live), self.stream);
        let generation = self.reader.generation;
        let mut step = Step::Wait;
        self.chunk(|out, written| {
            while out.len() < WRITE_BYTES_MAX {
                let offset = written + out.len() as u64;
                step = live.transmit(stream, generation, offset, out);
                if step != Step::Write {
                    break;
                }
            }
        });
        if step == Step::Planned {
            self.chunk(|out, _| sse::retry(out, RETRY_MS));
        }
        if matches!(step, Step::Finished | Step::Planned) && self.chunked {
            self.output.extend_from_slice(chunked::LAST);
        }
        step
    }

    /// One chunk around whatever `content` appends; nothing where it appends nothing. `content`
    /// is also given the bytes written on the connection before `output`.
    fn chunk(&mut self, content: impl FnOnce(&mut Vec<u8>, u64)) {
        let written = self.socket.handle.out.get().written();
        if !self.chunked {
            return content(self.output, written);
        }
        let slot = self.output.len();
        self.output.extend_from_slice(&[0; chunked::HEAD_LEN]);
        let start = self.output.len();
        content(self.output, written);
        let length = self.output.len() - start;
        if length == 0 {
            self.output.truncate(slot);
            return;
        }
        let head = self.output[slot..].first_chunk_mut().expect("the slot was just made");
        chunked::fill_head(head, length);
        self.output.extend_from_slice(chunked::TAIL);
    }

    /// Waits for something to send, for the keep-alive, or for the peer's end; false: it is over.
    /// No buffer is held meanwhile.
    async fn wait(&mut self) -> bool {
        let shard = Rc::clone(&self.socket.shard);
        shard.pool.give(std::mem::take(self.output));
        let handle = Rc::clone(&self.socket.handle);
        self.socket.phase(Phase::Streaming, Some(shard.settings.limits.sse_keep_alive));
        if self.watch {
            let mut readable = pin!(self.socket.readable());
            if handle.signal.or(readable.as_mut()).await.is_none() {
                if handle.fenced.get() {
                    // The shutdown has ended it; nothing may be in flight when the socket closes.
                    let _ = readable.await;
                }
            } else {
                match self.socket.peek() {
                    Ok(Peek::Empty) => {}
                    Ok(Peek::Data) => self.watch = false,
                    Ok(Peek::Eof) | Err(_) => return false,
                }
            }
        } else {
            handle.signal.raised().await;
        }
        handle.signal.take();
        *self.output = shard.pool.take();
        if handle.fenced.get() {
            return false;
        }
        if handle.expired.replace(false) {
            self.chunk(|out, _| sse::comment(out, b""));
        }
        true
    }
}
