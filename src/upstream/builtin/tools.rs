//! `tools/list` and `tools/call`.
//!
//! One table gives both, so what is listed is what can be called. Invariant: every argument that
//! costs time or memory is bounded here, before anything is opened.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::ask::{ClientOffers, Question};
use super::calls::Calls;
use super::content::{push_failed_result, push_raw_text_result};
use super::fixtures::{self, PAUSE};
use super::producer::{Event, Outcome, Producer};
use super::{About, Refusal, Sink, parse, parse_arguments, string_argument};
use crate::mcp::jsonrpc::push_string;

/// Events that one call may ask for.
pub const COUNT_MAX: u64 = 10_000_000;
/// Bytes of padding of one event.
pub const SIZE_BYTES_MAX: u64 = 1024 * 1024;
/// Milliseconds that one call may ask for as its pause, or between two events.
pub const INTERVAL_MS_MAX: u64 = 3_600_000;

const COUNT_DEFAULT: u64 = 10;
const SIZE_BYTES_DEFAULT: u64 = 64;
const PROGRESS_INTERVAL_MS_DEFAULT: u64 = 100;
const SLEEP_MS_DEFAULT: u64 = 1000;

/// A tool: what is listed of it, and what it does.
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) input_schema: &'static str,
    pub(super) action: Action,
}

/// What a tool does.
pub(super) enum Action {
    /// Returns the text that it is given.
    Echo,
    /// Sends events on the call's own stream.
    Stream,
    /// Sends events on the standalone stream.
    Standalone,
    /// Takes time.
    Sleep,
    /// Reports progress, if the client wants it.
    Progress,
    /// Returns this result.
    Answer(&'static str),
    /// Logs these texts, `PAUSE` apart, and returns a text.
    Log { logger: &'static str, texts: &'static [&'static str], text: &'static str },
    /// Reports 0, 50 and 100 percent, `PAUSE` apart, and returns a text.
    Percent { text: &'static str },
    /// Asks the client.
    Ask(Question),
}

/// Whether the result is there already.
pub(super) enum Reply {
    /// It is in the buffer.
    Now,
    /// The call stays open.
    Later,
}

const DEMO: &[Tool] = &[
    Tool {
        name: "echo",
        description: "Returns the text that it is given",
        input_schema: concat!(
            r#"{"type":"object","properties":{"text":{"type":"string","#,
            r#""description":"What comes back"}},"required":["text"]}"#
        ),
        action: Action::Echo,
    },
    Tool {
        name: "stream",
        description: "Sends numbered log messages on the stream of this call, then its result",
        input_schema: concat!(
            r#"{"type":"object","properties":{"#,
            r#""count":{"type":"integer","minimum":0,"maximum":10000000,"default":10,"#,
            r#""description":"How many messages"},"#,
            r#""size":{"type":"integer","minimum":0,"maximum":1048576,"default":64,"#,
            r#""description":"Bytes of padding in each"},"#,
            r#""interval_ms":{"type":"integer","minimum":0,"maximum":3600000,"default":0,"#,
            r#""description":"Milliseconds between two; 0 is as fast as they are read"},"#,
            r#""off_core":{"type":"boolean","default":false,"#,
            r#""description":"Produce from a thread of its own; only over HTTP"}}}"#
        ),
        action: Action::Stream,
    },
    Tool {
        name: "standalone",
        description: "Sends numbered log messages on the standalone stream, then its result",
        input_schema: concat!(
            r#"{"type":"object","properties":{"#,
            r#""count":{"type":"integer","minimum":0,"maximum":10000000,"default":10,"#,
            r#""description":"How many messages"},"#,
            r#""size":{"type":"integer","minimum":0,"maximum":1048576,"default":64,"#,
            r#""description":"Bytes of padding in each"},"#,
            r#""interval_ms":{"type":"integer","minimum":0,"maximum":3600000,"default":0,"#,
            r#""description":"Milliseconds between two; 0 is as fast as they are read"}}}"#
        ),
        action: Action::Standalone,
    },
    Tool {
        name: "sleep",
        description: "Takes its time, silently",
        input_schema: concat!(
            r#"{"type":"object","properties":{"#,
            r#""ms":{"type":"integer","minimum":0,"maximum":3600000,"default":1000,"#,
            r#""description":"How long, milliseconds"}}}"#
        ),
        action: Action::Sleep,
    },
    Tool {
        name: "progress",
        description: "Reports progress if the call has a progress token, then returns its result",
        input_schema: concat!(
            r#"{"type":"object","properties":{"#,
            r#""count":{"type":"integer","minimum":0,"maximum":10000000,"default":10,"#,
            r#""description":"How many steps"},"#,
            r#""interval_ms":{"type":"integer","minimum":0,"maximum":3600000,"default":100,"#,
            r#""description":"Milliseconds between two steps"}}}"#
        ),
        action: Action::Progress,
    },
];

/// The params of `tools/call`, borrowed from the message.
#[derive(Deserialize)]
pub struct ToolCall<'a> {
    /// The tool.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Its arguments, raw.
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
}

impl<'a> ToolCall<'a> {
    /// Reads the params of `tools/call`. An error is the sentence of a -32602.
    pub fn parse(params: Option<&'a str>) -> Result<Self, String> {
        parse(params).map_err(|refusal| refusal.message.into_owned())
    }
}

/// The arguments of the tools that send events (`stream`, `standalone`), within their bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// How many events, at most [`COUNT_MAX`].
    pub count: u64,
    /// Bytes of padding of each, at most [`SIZE_BYTES_MAX`].
    pub size: usize,
    /// Time between two, at most [`INTERVAL_MS_MAX`].
    pub interval: Duration,
    /// Whether the events shall come from a thread of their own, where there is one.
    pub off_core: bool,
}

impl Flood {
    /// Reads the arguments. An error is the sentence of a -32602, with the bounds.
    pub fn parse(arguments: Option<&RawValue>) -> Result<Self, String> {
        Self::read(arguments).map_err(|refusal| refusal.message.into_owned())
    }

    fn read(arguments: Option<&RawValue>) -> Result<Self, Refusal> {
        let arguments: FloodArguments = parse_arguments(arguments)?;
        let size = bounded(arguments.size, "size", SIZE_BYTES_DEFAULT, SIZE_BYTES_MAX)?;
        Ok(Self {
            count: bounded(arguments.count, "count", COUNT_DEFAULT, COUNT_MAX)?,
            size: usize::try_from(size).unwrap_or(usize::MAX),
            interval: interval(arguments.interval_ms, "interval_ms", 0)?,
            off_core: arguments.off_core,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FloodArguments<'a> {
    #[serde(borrow)]
    count: Option<&'a RawValue>,
    #[serde(borrow)]
    size: Option<&'a RawValue>,
    #[serde(borrow)]
    interval_ms: Option<&'a RawValue>,
    off_core: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SleepArguments<'a> {
    #[serde(borrow)]
    ms: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EchoArguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

/// Writes the result of `tools/list`, one page.
pub(super) fn write_list(out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"tools":["#);
    for (index, tool) in all().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"name":"#);
        push_string(out, tool.name);
        out.extend_from_slice(br#","description":"#);
        push_string(out, tool.description);
        out.extend_from_slice(br#","inputSchema":"#);
        out.extend_from_slice(tool.input_schema.as_bytes());
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}

/// What a call has beside its params.
pub(super) struct Context<'a> {
    pub(super) now: Instant,
    pub(super) call: u64,
    pub(super) progress_token: Option<&'a str>,
    pub(super) offers: ClientOffers,
}

/// Runs `tools/call`: writes the result into `out`, or opens the call.
pub(super) fn call(
    context: &Context<'_>,
    params: Option<&str>,
    calls: &mut Option<Box<Calls>>,
    out: &mut Vec<u8>,
    sink: &mut impl Sink,
) -> Result<Reply, Refusal> {
    let tool_call: ToolCall = parse(params)?;
    let Some(tool) = all().find(|tool| tool.name == tool_call.name) else {
        return Err(Refusal::invalid_params(format!("unknown tool: {}", tool_call.name)));
    };
    let arguments = tool_call.arguments;
    let producer = match &tool.action {
        Action::Echo => {
            let echo: EchoArguments = parse_arguments(arguments)?;
            push_raw_text_result(out, string_argument(echo.text, "text")?);
            return Ok(Reply::Now);
        }
        Action::Answer(result) => {
            out.extend_from_slice(result.as_bytes());
            return Ok(Reply::Now);
        }
        Action::Ask(question) => return ask(context, *question, arguments, calls, out, sink),
        Action::Stream => flood(context, arguments)?,
        Action::Standalone => flood(context, arguments)?.on_standalone(),
        Action::Sleep => sleep(context, arguments)?,
        Action::Progress => progress(context, arguments)?,
        Action::Log { logger, texts, text } => {
            Producer::new(Event::Log { logger, texts }, texts.len() as u64, PAUSE, context.now)
                .with_outcome(Outcome::Text(text))
        }
        Action::Percent { text } => {
            steps(context, Steps { first: 0, step: 50, count: 3, total: 100 }, PAUSE)
                .with_outcome(Outcome::Text(text))
        }
    };
    calls.get_or_insert_default().start(context.now, context.call, producer);
    Ok(Reply::Later)
}

fn all() -> impl Iterator<Item = &'static Tool> {
    DEMO.iter().chain(fixtures::TOOLS)
}

fn ask(
    context: &Context<'_>,
    question: Question,
    arguments: Option<&RawValue>,
    calls: &mut Option<Box<Calls>>,
    out: &mut Vec<u8>,
    sink: &mut impl Sink,
) -> Result<Reply, Refusal> {
    question.write_params(arguments, out)?;
    if !question.is_offered(context.offers) {
        out.clear();
        let capability = question.capability();
        push_failed_result(out, &format!("The client did not declare {capability}"));
        return Ok(Reply::Now);
    }
    let request = calls.get_or_insert_default().ask(context.call, question);
    sink.request(About::Call(context.call), request, question.method(), out);
    Ok(Reply::Later)
}

fn flood(context: &Context<'_>, arguments: Option<&RawValue>) -> Result<Producer, Refusal> {
    let Flood { count, size, interval, .. } = Flood::read(arguments)?;
    Ok(Producer::new(Event::Padded { size }, count, interval, context.now))
}

fn sleep(context: &Context<'_>, arguments: Option<&RawValue>) -> Result<Producer, Refusal> {
    let arguments: SleepArguments = parse_arguments(arguments)?;
    let ms = bounded(arguments.ms, "ms", SLEEP_MS_DEFAULT, INTERVAL_MS_MAX)?;
    let producer = Producer::pause(Duration::from_millis(ms), context.now);
    Ok(producer.with_outcome(Outcome::Slept(ms)))
}

fn progress(context: &Context<'_>, arguments: Option<&RawValue>) -> Result<Producer, Refusal> {
    let arguments: FloodArguments = parse_arguments(arguments)?;
    let count = bounded(arguments.count, "count", COUNT_DEFAULT, COUNT_MAX)?;
    let interval = interval(arguments.interval_ms, "interval_ms", PROGRESS_INTERVAL_MS_DEFAULT)?;
    let producer = steps(context, Steps { first: 1, step: 1, count, total: count }, interval);
    if context.progress_token.is_none() {
        return Ok(producer.with_outcome(Outcome::Text("no progress token: 0 events sent")));
    }
    Ok(producer)
}

/// The values of a series of progress notifications.
struct Steps {
    first: u64,
    step: u64,
    count: u64,
    total: u64,
}

/// Without a token nobody wants to know: the call only takes the same time.
fn steps(context: &Context<'_>, steps: Steps, interval: Duration) -> Producer {
    let Steps { first, step, count, total } = steps;
    match context.progress_token {
        Some(token) => {
            let event = Event::Progress { token: token.into(), first, step, total };
            Producer::new(event, count, interval, context.now)
        }
        None => {
            let pauses = u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX);
            Producer::pause(interval.saturating_mul(pauses), context.now)
        }
    }
}

fn interval(argument: Option<&RawValue>, name: &str, default: u64) -> Result<Duration, Refusal> {
    bounded(argument, name, default, INTERVAL_MS_MAX).map(Duration::from_millis)
}

fn bounded(
    argument: Option<&RawValue>,
    name: &str,
    default: u64,
    max: u64,
) -> Result<u64, Refusal> {
    let Some(raw) = argument else { return Ok(default) };
    match raw.get().parse() {
        Ok(number) if number <= max => Ok(number),
        _ => Err(Refusal::invalid_params(format!("{name} must be an integer from 0 to {max}"))),
    }
}
