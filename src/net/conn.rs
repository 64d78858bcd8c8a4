//! One connection, from its first request to its end.
//!
//! The task reads a head, decides where the request belongs, and if that is another shard hands
//! the connection over whole, between requests. Otherwise it reads the body, asks the session and
//! writes the answer; several pipelined answers leave in one write.

use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use crate::auth::gate::Refusal;
use crate::auth::jwks::Published;
use crate::http::request::{self, Framing, HeadError};
use crate::http::response::{self, Status};
use crate::http::{chunked, request::Version};
use crate::limits::{
    DRAIN_BYTES_MAX, HOT_TIME, JWKS_TIME_MAX, LINGER_TIME, READ_BYTES_MAX, WRITE_BYTES_MAX,
};
use crate::mcp::jsonrpc::codes;
use crate::session::ExchangeKey;
use crate::shard::budget::{Charge, Of};
use crate::shard::handoff::{Arrived, Letter, Permit};
use crate::shard::live::{Live, Reader};
use crate::shard::timer::pause;
use crate::shard::{Shard, task};
use crate::stream::Attached;
use crate::sys::leash::Leashed;
use crate::sys::tcp;

use super::answer::Answer;
use super::body::{Body, BodyError};
use super::dispatch::{self, Outcome};
use super::get::{self, Opened};
use super::handle::{Handle, Phase};
use super::request::{Early, Endpoint, Frame, Request, SessionField, Verb};
use super::socket::{Got, Socket};
use super::writer::{End, Writer};

/// How often a request looks whether its issuer's keys are there.
const KEYS_PAUSE: Duration = Duration::from_millis(10);

/// What the connection does next.
enum Next {
    /// The next request.
    Go,
    /// Write what is left, let the peer read it, and close.
    Linger,
    /// More of the request's head has to come.
    Receive,
    /// Something else has to come first.
    Wait(Box<Waiting>),
    /// Write what is left, and move to another shard.
    Move(u16),
    /// The response is a stream, whose head is written.
    Stream(Writer),
    /// There is nothing to do for now, or ever.
    Leave(Leave),
}

/// How a connection stops working: for a while, or for good.
enum Leave {
    /// Between requests, for a while.
    Idle,
    /// Its stream is silent for a while.
    Silent(Writer),
    /// Close: the answer has been written, or nobody can read one.
    Close,
    /// It belongs to another shard.
    Move(u16),
    /// Its stream has been taken: close with a reset, then report.
    Fenced(Rc<Live>, u32, Rc<Reader>),
}

/// A request whose answer is not there at once.
struct Waiting {
    frame: Frame,
    what: What,
}

/// What it waits for.
enum What {
    /// The keys of its token's issuer: its head is looked at again then.
    Keys,
    /// The rest of its body.
    Body(Request),
    /// Its place as the reader of a stream.
    Get(Request),
    /// The record of the session that its answer begins.
    Kept(Rc<Live>, Answer),
    /// The answer itself.
    Reply(Rc<Live>, ExchangeKey),
}

/// Starts serving a connection that was accepted or that moves here.
pub fn start(shard: &Rc<Shard>, arrived: Arrived) {
    let Arrived { socket, input, out, permit } = arrived;
    let Ok(stream) = Leashed::new(socket) else { return };
    let key = shard.key();
    let handle = Rc::new(Handle::new(stream.leash(), key, out));
    shard.add_connection(Rc::clone(&handle));
    let lost = Rc::clone(&handle);
    let socket = Socket::new(shard, handle, stream);
    let conn = Conn { socket, input, output: Vec::new(), permit };
    let on_panic = Rc::clone(shard);
    task::spawn("connection", conn.serve(), move || {
        on_panic.counters.panics.increment();
        on_panic.counters.connections_closed.increment();
        on_panic.remove_connection(&lost);
        // Rare enough to ask every session.
        for live in on_panic.sessions() {
            live.handle_task_lost(&on_panic, &lost);
        }
    });
}

struct Conn {
    socket: Socket,
    /// Bytes read and not yet used.
    input: Vec<u8>,
    /// Bytes to write.
    output: Vec<u8>,
    permit: Permit,
}

/// A request head, or what it is answered.
type HeadResult = Result<Request, Early>;

impl Conn {
    /// The connection's task. What it holds while nothing happens is memory of every idle client:
    /// it works in a box, which goes before it waits for a request or an event that may be long in
    /// coming.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    fn serve(mut self) -> impl Future<Output = ()> {
        async move {
            let mut next = Next::Go;
            loop {
                next = match Box::pin(self.work(next)).await {
                    Leave::Idle => match self.socket.readable().await {
                        Ok(()) => self.wake_up(),
                        Err(_) => return self.close(),
                    },
                    Leave::Silent(mut writer) => {
                        writer.wait_while_silent(&self.socket).await;
                        Next::Stream(writer)
                    }
                    Leave::Close => return self.close(),
                    Leave::Move(target) => return self.hand_over(target),
                    Leave::Fenced(live, stream, reader) => {
                        return Box::pin(self.reset(&live, stream, &reader)).await;
                    }
                }
            }
        }
    }

    /// Serves what there is to serve. A request whose answer is there at once is served without a
    /// wait; what takes longer than reading and writing waits in a box of its own.
    async fn work(&mut self, mut next: Next) -> Leave {
        let shard = Rc::clone(&self.socket.shard);
        loop {
            next = match next {
                // Pipelined answers leave together, but not without a bound.
                Next::Go if self.output.len() >= WRITE_BYTES_MAX => match self.flush().await {
                    Ok(()) => self.turn(&shard),
                    Err(_) => return Leave::Close,
                },
                Next::Go => self.turn(&shard),
                Next::Receive => self.receive(&shard).await,
                Next::Wait(waiting) => Box::pin(self.wait(&shard, waiting)).await,
                Next::Stream(writer) => self.stream(&shard, writer).await,
                Next::Move(target) => match self.flush().await {
                    Ok(()) => return Leave::Move(target),
                    Err(_) => return Leave::Close,
                },
                Next::Linger => {
                    Box::pin(self.linger()).await;
                    return Leave::Close;
                }
                Next::Leave(leave) => return leave,
            }
        }
    }

    /// One request, as far as it goes without a wait.
    fn turn(&mut self, shard: &Rc<Shard>) -> Next {
        let (mut frame, head) = match self.parse_head(shard) {
            Ok(Some(head)) => head,
            Ok(None) => return Next::Receive,
            Err(error) => {
                let answer =
                    Answer::error(error.status(), None, codes::INVALID_REQUEST, error.reason());
                return self.give_up(shard, &answer);
            }
        };
        let request = match head {
            Ok(request) => {
                self.socket.handle.asked_issuer.set(false);
                frame.until = request.who.as_ref().and_then(|who| who.expires);
                request
            }
            Err(Early::Denied(Refusal::Later)) if !self.socket.handle.asked_issuer.get() => {
                return Next::Wait(Box::new(Waiting { frame, what: What::Keys }));
            }
            Err(early) => {
                self.socket.handle.asked_issuer.set(false);
                return self.answer_early(shard, &frame, early);
            }
        };
        if let SessionField::Id(id) = request.session {
            let owner = id.owner(shard.process.mailboxes.len());
            if owner != shard.index {
                return Next::Move(owner);
            }
        }
        match Body::find(&self.socket, &self.input, &frame) {
            Some(body) => self.ask(shard, frame, request, body),
            None => Next::Wait(Box::new(Waiting { frame, what: What::Body(request) })),
        }
    }

    /// The request is there whole.
    fn ask(&mut self, shard: &Rc<Shard>, frame: Frame, request: Request, body: Body) -> Next {
        self.socket.phase(Phase::Answering, None);
        match request.verb {
            Verb::Post => {
                let outcome = dispatch::post(shard, &request, body.bytes(&self.input));
                self.consume(body.consumed());
                self.answer_post(shard, frame, outcome)
            }
            Verb::Delete => {
                self.consume(body.consumed());
                let outcome = dispatch::delete(shard, &request);
                self.answer_post(shard, frame, outcome)
            }
            Verb::PostHttpSse => {
                let answer = dispatch::post_http_sse(shard, &request, body.bytes(&self.input));
                self.consume(body.consumed());
                self.answer(shard, &frame, &answer)
            }
            Verb::Get | Verb::OpenHttpSse => {
                self.consume(body.consumed());
                Next::Wait(Box::new(Waiting { frame, what: What::Get(request) }))
            }
        }
    }

    /// Waits for what the request of `waiting` needs, and goes on with it.
    async fn wait(&mut self, shard: &Rc<Shard>, waiting: Box<Waiting>) -> Next {
        let Waiting { frame, what } = *waiting;
        match what {
            What::Keys => {
                self.wait_for_keys(shard).await;
                Next::Go
            }
            What::Body(request) => match self.read_body(&frame).await {
                Ok(body) => self.ask(shard, frame, request, body),
                Err(BodyError::Gone) => Next::Leave(Leave::Close),
                Err(BodyError::Refused(answer)) => {
                    answer.write(shard, &frame, true, &mut self.output);
                    shard.counters.refusal(answer.status.code());
                    // What had come of it is of no use any more, and may be much.
                    self.input = Vec::new();
                    Next::Linger
                }
            },
            What::Get(request) => self.answer_get(shard, &frame, &request).await,
            What::Kept(live, answer) => {
                let answer = dispatch::keep(shard, &live, answer).await;
                self.answer(shard, &frame, &answer)
            }
            What::Reply(live, exchange) => match self.wait_for_reply(shard, live, exchange).await {
                Some(outcome) => self.answer_post(shard, frame, outcome),
                None => Next::Linger,
            },
        }
    }

    /// Waits until the issuer's keys have been fetched, or that has taken too long.
    async fn wait_for_keys(&mut self, shard: &Rc<Shard>) {
        self.socket.phase(Phase::Answering, None);
        let end = Instant::now() + JWKS_TIME_MAX;
        while shard.gate.published().is_some_and(Published::is_wanted) && Instant::now() < end {
            pause(KEYS_PAUSE).await;
        }
        self.socket.handle.asked_issuer.set(true);
    }

    async fn read_body(&mut self, frame: &Frame) -> Result<Body, BodyError> {
        Body::read(&mut self.socket, &mut self.input, &mut self.output, frame).await
    }

    /// Writes what waits, and reads more of the request head.
    async fn receive(&mut self, shard: &Rc<Shard>) -> Next {
        if self.flush().await.is_err() {
            return Next::Leave(Leave::Close);
        }
        let receives = self.socket.handle.phase.get() == Phase::Receiving;
        let got = if self.input.is_empty() && !receives {
            if shard.draining.get() && !self.socket.handle.is_fresh() {
                return Next::Leave(Leave::Close);
            }
            // The next request may follow soon: a parked read, which is one call less.
            if self.input.capacity() == 0 {
                self.input = shard.pool.take();
            }
            self.socket.phase(Phase::Hot, Some(HOT_TIME));
            let read = self.socket.read_while_hot(&mut self.input).await;
            self.socket.got_while_hot(read, &mut self.input)
        } else {
            if !receives {
                let limit = shard.limits.head_timeout;
                self.socket.phase(Phase::Receiving, Some(limit));
            }
            self.socket.read(&mut self.input, READ_BYTES_MAX).await
        };
        match got {
            Got::More => Next::Go,
            Got::Cooled => self.cool_down(shard),
            Got::End if self.socket.handle.expired.get() => {
                let reason = "the request head did not come in time";
                let code = codes::INVALID_REQUEST;
                let answer = Answer::error(Status::RequestTimeout, None, code, reason);
                self.give_up(shard, &answer)
            }
            Got::End => Next::Leave(Leave::Close),
        }
    }

    /// No request has followed: the wait for it holds no buffer.
    fn cool_down(&mut self, shard: &Rc<Shard>) -> Next {
        shard.pool.give(std::mem::take(&mut self.input));
        shard.pool.give(std::mem::take(&mut self.output));
        self.socket.phase(Phase::Idle, Some(shard.limits.keep_alive_timeout));
        Next::Leave(Leave::Idle)
    }

    /// A request begins, or the end of the connection has come.
    fn wake_up(&mut self) -> Next {
        let shard = &self.socket.shard;
        self.input = shard.pool.take();
        self.socket.phase(Phase::Receiving, Some(shard.limits.head_timeout));
        Next::Receive
    }

    /// What the input begins with, if it is complete. A step of its own: the parsed head is large
    /// and must not become part of the task.
    fn parse_head(&self, shard: &Shard) -> Result<Option<(Frame, HeadResult)>, HeadError> {
        let Some(head) = request::parse(&self.input)? else { return Ok(None) };
        let config = &shard.process.config;
        let (found, origins) = (Endpoint::find(head.path, config), &shard.process.origins);
        let request = Request::read(&head, found, origins, &shard.gate);
        Ok(Some((Frame::of(&head, found, origins), request)))
    }

    /// Answers what cannot be read any further, and closes.
    fn give_up(&mut self, shard: &Rc<Shard>, answer: &Answer) -> Next {
        let frame = Frame {
            server: 0,
            head_bytes: 0,
            framing: Framing::None,
            version: Version::Http11,
            keep_alive: false,
            expect_continue: false,
            head_only: false,
            allow: "",
            origin: None,
            until: None,
        };
        shard.counters.refusal(answer.status.code());
        answer.write(shard, &frame, true, &mut self.output);
        Next::Linger
    }

    /// Answers a head that decides its answer alone. Its body is skipped where it is there already;
    /// otherwise the connection ends.
    fn answer_early(&mut self, shard: &Rc<Shard>, frame: &Frame, early: Early) -> Next {
        let answer = Answer::early(shard, frame, early);
        let whole = match frame.framing {
            Framing::None => Some(frame.head_bytes),
            Framing::Length(bytes) => usize::try_from(bytes)
                .ok()
                .and_then(|bytes| bytes.checked_add(frame.head_bytes))
                .filter(|&end| end <= self.input.len()),
            Framing::Chunked => None,
        };
        match whole {
            Some(end) => {
                self.consume(end);
                self.answer(shard, frame, &answer)
            }
            None => {
                if answer.status.code() >= 400 {
                    shard.counters.refusal(answer.status.code());
                }
                answer.write(shard, frame, true, &mut self.output);
                Next::Linger
            }
        }
    }

    fn answer(&mut self, shard: &Rc<Shard>, frame: &Frame, answer: &Answer) -> Next {
        if answer.status.code() >= 400 {
            shard.counters.refusal(answer.status.code());
        }
        if self.output.capacity() == 0 {
            self.output = shard.pool.take();
        }
        answer.write(shard, frame, false, &mut self.output);
        if frame.keep_alive && !shard.draining.get() { Next::Go } else { Next::Linger }
    }

    fn answer_post(&mut self, shard: &Rc<Shard>, frame: Frame, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Answer(answer) => {
                let answer = answer.within_budget(shard);
                self.answer(shard, &frame, &answer)
            }
            Outcome::Stream(live, stream) => {
                let attached = live.with(shard, |session, _, _| session.attach_first(stream));
                match attached {
                    Some(attached) => self.open_stream(shard, &frame, live, stream, &attached),
                    None => Next::Linger,
                }
            }
            Outcome::Kept(live, answer) => {
                Next::Wait(Box::new(Waiting { frame, what: What::Kept(live, answer) }))
            }
            Outcome::Wait(live, exchange) => {
                Next::Wait(Box::new(Waiting { frame, what: What::Reply(live, exchange) }))
            }
        }
    }

    /// Waits for a JSON answer; none where the client goes away first.
    async fn wait_for_reply(
        &mut self,
        shard: &Rc<Shard>,
        live: Rc<Live>,
        exchange: ExchangeKey,
    ) -> Option<Outcome> {
        // Before the first await: a reply that comes while earlier answers are written would wake
        // nobody.
        let signal = live.wait_for(exchange);
        self.lend_input(shard);
        if self.flush().await.is_err() {
            self.abandon(shard, &live, exchange);
            return None;
        }
        let mut watch = true;
        loop {
            let ready = match watch {
                true => {
                    let readable = std::pin::pin!(self.socket.readable());
                    signal.or(readable).await.is_none()
                }
                false => {
                    signal.raised().await;
                    true
                }
            };
            if ready {
                signal.take();
                match dispatch::reply(shard, Rc::clone(&live), exchange) {
                    Outcome::Wait(..) => continue,
                    outcome => {
                        live.stop_waiting(exchange);
                        return Some(outcome);
                    }
                }
            }
            match self.socket.peek() {
                Ok(tcp::Peek::Empty) => {}
                Ok(tcp::Peek::Data) => watch = false,
                Ok(tcp::Peek::Eof) | Err(_) => {
                    self.abandon(shard, &live, exchange);
                    return None;
                }
            }
        }
    }

    fn abandon(&self, shard: &Rc<Shard>, live: &Rc<Live>, exchange: ExchangeKey) {
        live.stop_waiting(exchange);
        live.with(shard, |session, _, _| {
            session.abandon(exchange);
            if live.is_new() {
                session.end(crate::session::Ended::NotInitialized);
            }
        });
    }

    async fn answer_get(&mut self, shard: &Rc<Shard>, frame: &Frame, request: &Request) -> Next {
        if self.flush().await.is_err() {
            return Next::Linger;
        }
        match get::open(shard, request).await {
            Opened::Answer(answer) => self.answer(shard, frame, &answer),
            Opened::Superseded => Next::Linger,
            Opened::InBand(bytes) => {
                self.stream_head(shard, frame);
                if frame.version == Version::Http11 {
                    let mut head = [0; chunked::HEAD_LEN];
                    chunked::fill_head(&mut head, bytes.len());
                    self.output.extend_from_slice(&head);
                    self.output.extend_from_slice(&bytes);
                    self.output.extend_from_slice(chunked::TAIL);
                    self.output.extend_from_slice(chunked::LAST);
                    return if frame.keep_alive { Next::Go } else { Next::Linger };
                }
                self.output.extend_from_slice(&bytes);
                Next::Linger
            }
            Opened::Attached(live, stream, attached) => {
                // Whoever listens is idle as a rule; one who is not is slowed down by little.
                live.rest();
                self.open_stream(shard, frame, live, stream, &attached)
            }
        }
    }

    fn stream_head(&mut self, shard: &Shard, frame: &Frame) {
        if self.output.capacity() == 0 {
            self.output = shard.pool.take();
        }
        let close = !frame.keep_alive || shard.draining.get();
        let head = response::head(&mut self.output, Status::Ok)
            .to_version(frame.version)
            .connection_close(close)
            .date(&shard.date())
            .event_stream();
        let head = frame.cross_origin(head);
        if frame.version == Version::Http11 { head.chunked() } else { head.until_close() }
    }

    /// The connection has attached to a stream: its response begins.
    fn open_stream(
        &mut self,
        shard: &Shard,
        frame: &Frame,
        live: Rc<Live>,
        stream: u32,
        attached: &Attached,
    ) -> Next {
        self.lend_input(shard);
        self.stream_head(shard, frame);
        let chunked = frame.version == Version::Http11;
        let handle = Rc::clone(&self.socket.handle);
        let (keep_alive, output) = (frame.keep_alive, &mut self.output);
        let until = frame.until.map(|until| {
            let left = until.duration_since(SystemTime::now()).unwrap_or_default();
            Instant::now() + left
        });
        let form = (chunked, until);
        let mut writer = Writer::open(handle, output, live, stream, attached, form);
        writer.reusable = chunked && keep_alive;
        Next::Stream(writer)
    }

    /// Writes the stream until its response ends; afterwards the reader is gone, however it ended.
    async fn stream(&mut self, shard: &Rc<Shard>, mut writer: Writer) -> Next {
        let end = writer.run(&mut self.socket, &mut self.output).await;
        if end == End::Silent {
            return Next::Leave(Leave::Silent(writer));
        }
        let Writer { live, stream, reader, reusable, .. } = writer;
        if self.socket.handle.fenced.get() {
            return Next::Leave(Leave::Fenced(live, stream, reader));
        }
        // A finished stream has no listener without a cursor, who alone goes by the last
        // acknowledgement: asking the kernel for it would be a system call for every answer.
        let finished = live.look(|session| {
            session.stream(stream).is_some_and(|stream| stream.is_finished())
                && !session.has_receipts(stream)
        });
        let acked = match end {
            End::Whole if finished => self.socket.handle.out.get().acked(),
            _ => self.last_acked(),
        };
        live.remove_reader(shard, stream, &reader, acked);
        match (end, reusable) {
            (End::Whole, true) if !shard.draining.get() => Next::Go,
            (End::Whole | End::Planned, _) => Next::Linger,
            (End::Broken | End::Silent, _) => {
                self.output.clear();
                Next::Linger
            }
        }
    }

    fn last_acked(&self) -> u64 {
        let handle = &self.socket.handle;
        handle.read_acked().unwrap_or_else(|| handle.out.get().acked())
    }

    fn consume(&mut self, bytes: usize) {
        if bytes >= self.input.len() {
            self.input.clear();
            // A buffer that grew for a large body is not kept.
            if self.input.capacity() > WRITE_BYTES_MAX {
                self.input = Vec::new();
            }
        } else {
            self.input.drain(..bytes);
        }
    }

    /// Gives an empty read buffer back before a wait that may be long.
    fn lend_input(&mut self, shard: &Shard) {
        if self.input.is_empty() {
            shard.pool.give(std::mem::take(&mut self.input));
        }
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.socket.phase(Phase::Answering, None);
        if self.output.len() > WRITE_BYTES_MAX {
            return Box::pin(self.flush_large()).await;
        }
        self.socket.write(&mut self.output).await
    }

    /// More than a pooled buffer holds is on the shard's account until it is sent.
    async fn flush_large(&mut self) -> std::io::Result<()> {
        let shard = &self.socket.shard;
        let charge = Charge::new(&shard.budget, Of::Transit);
        charge.set(self.output.capacity() as u64);
        shard.relieve_if_due();
        let written = self.socket.write(&mut self.output).await;
        self.output = Vec::new();
        written
    }

    /// Writes what is left, says that it is the end, and lets the peer read it: closing with
    /// unread input would reset the connection and take the answer with it.
    async fn linger(&mut self) {
        if self.flush().await.is_ok() {
            self.socket.finish();
            self.socket.phase(Phase::Receiving, Some(LINGER_TIME));
            let mut drained = 0;
            while drained < DRAIN_BYTES_MAX {
                self.input.clear();
                if self.socket.read(&mut self.input, READ_BYTES_MAX).await != Got::More {
                    break;
                }
                drained += self.input.len();
            }
        }
    }

    fn close(self) {
        let shard = &self.socket.shard;
        shard.remove_connection(&self.socket.handle);
        shard.counters.connections_closed.increment();
        shard.pool.give(self.input);
        shard.pool.give(self.output);
    }

    /// Moves to the shard that owns the session of the request in `input`.
    fn hand_over(self, target: u16) {
        let shard = Rc::clone(&self.socket.shard);
        shard.remove_connection(&self.socket.handle);
        shard.counters.connections_handed_off.increment();
        let out = self.socket.handle.out.get();
        let socket = self.socket.into_stream().into_fd();
        let arrived = Arrived { socket, input: self.input, out, permit: self.permit };
        let mailbox = &shard.process.mailboxes[usize::from(target)];
        mailbox.hand_off(Letter::Connection(Box::new(arrived)));
    }

    /// The fence: the acknowledged count is read for the last time, then the socket goes with a
    /// reset so that nothing that is still queued arrives, then the taker is told.
    async fn reset(self, live: &Rc<Live>, stream: u32, reader: &Reader) {
        let shard = Rc::clone(&self.socket.shard);
        shard.remove_connection(&self.socket.handle);
        shard.counters.connections_closed.increment();
        // Whatever wait was given up is out of the kernel after one turn of the ring.
        shard.yielder.yield_now().await;
        // As late as can be: what arrives after this is sent again to a listener without a cursor.
        let acked = self.last_acked();
        let socket = self.socket.into_stream().into_fd();
        if let Err(error) = tcp::linger_zero(&socket) {
            tracing::debug!(%error, "a fenced socket could not be reset");
        }
        drop(socket);
        live.remove_reader(&shard, stream, reader, acked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of what `make` returns.
    fn size_of_future<A, F: Future>(_make: impl Fn(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Story: the task of a connection was 4,352 bytes, because a future is as large as its largest
    /// branch, and every idle client paid for the branches that it was not in.
    #[test]
    fn the_task_of_a_connection_stays_lean() {
        let bytes = size_of_future(Conn::serve);
        assert!(bytes <= 320, "the connection's future has {bytes} bytes");
    }
}
