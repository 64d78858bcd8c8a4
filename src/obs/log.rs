//! Log lines: text or JSON, to stderr, written by a thread of their own.
//!
//! Invariants: the thread that logs formats its line and puts it into a bounded queue, and never
//! writes; a full queue drops the line and counts it, because a stalled terminal or pipe must not
//! stall a stream; what was lost is told at the end.

use std::io::{self, IsTerminal, Write};

use tracing::Subscriber;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{LogConfig, LogFormat};

/// Lines that wait for the writing thread; more are dropped.
pub const WAITING_LINES_MAX: usize = 16 * 1024;

/// Why logging could not start.
#[derive(Debug)]
pub enum LogError {
    /// The filter has directives that mean nothing.
    Filter(ParseError),
    /// Something in this process logs already.
    Taken(TryInitError),
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogError::Filter(error) => write!(f, "the log filter: {error}"),
            LogError::Taken(error) => write!(f, "logging: {error}"),
        }
    }
}

impl std::error::Error for LogError {}

/// Keeps the writing thread; dropping it writes what waits and tells how many lines were lost.
///
/// `std::process::exit` drops nothing: drop this before.
#[must_use = "the lines that wait are lost without it"]
pub struct LogGuard {
    writer: Option<WorkerGuard>,
    lost: ErrorCounter,
    format: LogFormat,
}

impl LogGuard {
    /// Lines dropped so far because the queue was full.
    pub fn lost_lines(&self) -> u64 {
        self.lost.dropped_lines() as u64
    }

    /// What tells [`LogGuard::lost_lines`] at any time, from any thread.
    pub fn lost_lines_counter(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let lost = self.lost.clone();
        move || lost.dropped_lines() as u64
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        drop(self.writer.take());
        if let Some(line) = lost_line(self.format, self.lost_lines()) {
            // Nobody is left to tell when stderr itself is gone.
            let _ = writeln!(io::stderr().lock(), "{line}");
        }
    }
}

fn lost_line(format: LogFormat, lost: u64) -> Option<String> {
    match (format, lost) {
        (_, 0) => None,
        (LogFormat::Text, _) => Some(format!("WARN {lost} log lines were lost: stderr was slow")),
        (LogFormat::Json, _) => Some(format!(
            "{{\"level\":\"WARN\",\"message\":\"log lines were lost: stderr was slow\",\
             \"lost_lines\":{lost}}}"
        )),
    }
}

/// Starts logging for the whole process.
///
/// # Errors
/// [`LogError`]; nothing has been started then.
pub fn start(config: &LogConfig) -> Result<LogGuard, LogError> {
    let colours = config.format == LogFormat::Text && io::stderr().is_terminal();
    let (subscriber, guard) = build(config, WAITING_LINES_MAX, colours, io::stderr())?;
    subscriber.try_init().map_err(LogError::Taken)?;
    Ok(guard)
}

type Built = (Box<dyn Subscriber + Send + Sync>, LogGuard);

fn build(
    config: &LogConfig,
    waiting_lines_max: usize,
    colours: bool,
    to: impl Write + Send + 'static,
) -> Result<Built, LogError> {
    let filter = EnvFilter::try_new(&config.filter).map_err(LogError::Filter)?;
    let (queue, writer): (NonBlocking, _) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(waiting_lines_max)
        .thread_name("log")
        .finish(to);
    let guard =
        LogGuard { writer: Some(writer), lost: queue.error_counter(), format: config.format };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(queue);
    let subscriber: Box<dyn Subscriber + Send + Sync> = match config.format {
        LogFormat::Text => Box::new(lines.with_ansi(colours).finish()),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).finish()),
    };
    Ok((subscriber, guard))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn config(filter: &str, format: LogFormat) -> LogConfig {
        LogConfig { filter: filter.to_owned(), format }
    }

    #[test]
    fn dropping_the_guard_writes_what_waits() {
        let page = Page::default();
        let (subscriber, guard) =
            build(&config("info", LogFormat::Text), 64, false, page.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(session = "s1", "session started");
            tracing::debug!("not asked for");
        });
        drop(guard);
        let text = page.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("session started") && text.contains("session=\"s1\""), "{text}");
    }

    #[test]
    fn a_json_line_is_one_object_with_the_fields_on_top() {
        let page = Page::default();
        let (subscriber, guard) =
            build(&config("info", LogFormat::Json), 64, false, page.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(status = 410, "resume\nrefused");
        });
        drop(guard);
        let text = page.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["status"], &line["level"]), (&410.into(), &"WARN".into()));
        assert_eq!(line["message"], "resume\nrefused");
    }

    /// A writer that lets one write through for each message of its channel.
    struct Stalled(SyncSender<()>, Receiver<()>);

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(());
            let _ = self.1.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A stalled stderr costs lines, never the thread that logs; each lost line is counted.
    #[test]
    fn a_stalled_writer_loses_lines_and_counts_them() {
        let (at_write, writing) = sync_channel(64);
        let (let_go, gate) = sync_channel::<()>(64);
        let (subscriber, guard) =
            build(&config("info", LogFormat::Text), 4, false, Stalled(at_write, gate)).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("the one that stalls");
            writing.recv().unwrap();
            for n in 0..10 {
                tracing::info!(n, "behind it");
            }
        });
        assert_eq!(guard.lost_lines(), 6);
        drop(let_go);
        drop(guard);
    }

    #[test]
    fn the_loss_is_told_in_the_form_of_the_other_lines() {
        assert_eq!(lost_line(LogFormat::Text, 0), None);
        assert!(lost_line(LogFormat::Text, 7).unwrap().contains("7 log lines"));
        let json = lost_line(LogFormat::Json, 7).unwrap();
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(line["lost_lines"], 7);
    }

    #[test]
    fn a_filter_that_means_nothing_is_an_error() {
        let built = build(&config("gapless=loud", LogFormat::Text), 4, false, Page::default());
        assert!(matches!(built, Err(LogError::Filter(_))));
    }
}
