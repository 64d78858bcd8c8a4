//! One row for each settable bound: its flag, its help, its unit and its range.
//!
//! The flag is the name of the field of [`Limits`] with hyphens; the default in the help is
//! [`Limits::default`]'s. A bound is named here and in [`Limits`], nowhere else in `config`.

use std::time::Duration;

use bytesize::ByteSize;

use crate::limits::{Limits, SEGMENT_BYTES_MAX};

/// A settable bound.
pub(super) struct Bound {
    /// The flag without its hyphens.
    pub(super) name: &'static str,
    /// The heading of the help under which it stands.
    pub(super) heading: &'static str,
    /// What it bounds.
    pub(super) help: &'static str,
    /// Where it is kept, and what it may be.
    pub(super) field: Field,
}

/// A field of [`Limits`], with the smallest and largest value that makes sense.
pub(super) enum Field {
    /// A number of things.
    Count(fn(&mut Limits) -> &mut usize, usize, usize),
    /// A number of events, 64 bits wide.
    Events(fn(&mut Limits) -> &mut u64, u64, u64),
    /// Bytes that one allocation may hold.
    Size(fn(&mut Limits) -> &mut usize, u64, u64),
    /// Bytes, 64 bits wide.
    WideSize(fn(&mut Limits) -> &mut u64, u64, u64),
    /// A time span; its largest value is [`TIME_MAX`].
    Time(fn(&mut Limits) -> &mut Duration, Duration),
}

/// Heading: how much the program takes on.
pub(super) const ADMISSION: &str = "Admission";
/// Heading: what is kept of each stream.
pub(super) const LOGS: &str = "Stream logs, in memory (bytes beat age)";
/// Heading: how long things may take.
pub(super) const TIMEOUTS: &str = "Timeouts";
/// Heading: what outlives the process.
pub(super) const DATA: &str = "Durable log (with a --data-dir)";
/// Heading: child processes.
pub(super) const CHILDREN: &str = "Child processes (with a COMMAND)";

/// A year: far enough for everybody, near enough that adding it to a clock cannot overflow.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
const KIB: u64 = 1024;
const GIB: u64 = KIB * KIB * KIB;
const NONE: Duration = Duration::ZERO;
const TICK: Duration = Duration::from_millis(10);

/// Every settable bound, in the order of the help.
pub(super) const BOUNDS: &[Bound] = &[
    Bound {
        name: "connections",
        heading: ADMISSION,
        help: "Connections of the whole process",
        field: Field::Count(|l| &mut l.connections, 1, 1_000_000),
    },
    Bound {
        name: "sessions",
        heading: ADMISSION,
        help: "Sessions of the whole process; beyond it initialize gets 503",
        field: Field::Count(|l| &mut l.sessions, 1, 1_000_000),
    },
    Bound {
        name: "calls-per-session",
        heading: ADMISSION,
        help: "Requests of one session that may be in flight",
        field: Field::Count(|l| &mut l.calls_per_session, 1, 1_000_000),
    },
    Bound {
        name: "body-bytes",
        heading: ADMISSION,
        help: "Size of one request body; beyond it the answer is 413",
        field: Field::Size(|l| &mut l.body_bytes, KIB, GIB),
    },
    Bound {
        name: "event-bytes",
        heading: LOGS,
        help: "Size of one message from the server behind",
        field: Field::Size(|l| &mut l.event_bytes, KIB, GIB),
    },
    Bound {
        name: "stream-bytes",
        heading: LOGS,
        help: "Size of one stream's log",
        field: Field::WideSize(|l| &mut l.stream_bytes, KIB, 1024 * GIB),
    },
    Bound {
        name: "stream-events",
        heading: LOGS,
        help: "Events of one stream's log",
        field: Field::Events(|l| &mut l.stream_events, 1, 1_000_000_000),
    },
    Bound {
        name: "memory-bytes",
        heading: LOGS,
        help: "Size of all that grows: logs, calls, bodies, queues; each shard has its part",
        field: Field::WideSize(|l| &mut l.memory_bytes, KIB, 1024 * GIB),
    },
    Bound {
        name: "session-bytes",
        heading: LOGS,
        help: "Size of all logs and open calls of one session",
        field: Field::WideSize(|l| &mut l.session_bytes, KIB, 1024 * GIB),
    },
    Bound {
        name: "retention",
        heading: LOGS,
        help: "How long a finished stream can still be resumed",
        field: Field::Time(|l| &mut l.retention, NONE),
    },
    Bound {
        name: "idle-timeout",
        heading: TIMEOUTS,
        help: "How long a session without request, stream or open call is kept",
        field: Field::Time(|l| &mut l.idle_timeout, TICK),
    },
    Bound {
        name: "head-timeout",
        heading: TIMEOUTS,
        help: "How long a client may take for a request head, or between two reads of a body",
        field: Field::Time(|l| &mut l.head_timeout, TICK),
    },
    Bound {
        name: "keep-alive-timeout",
        heading: TIMEOUTS,
        help: "How long a connection may be silent between two requests",
        field: Field::Time(|l| &mut l.keep_alive_timeout, TICK),
    },
    Bound {
        name: "sse-keep-alive",
        heading: TIMEOUTS,
        help: "Silence after which a comment is sent on an open stream",
        field: Field::Time(|l| &mut l.sse_keep_alive, TICK),
    },
    Bound {
        name: "peer-timeout",
        heading: TIMEOUTS,
        help: "How long a peer may acknowledge or take nothing before its connection is gone",
        field: Field::Time(|l| &mut l.peer_timeout, TICK),
    },
    Bound {
        name: "init-timeout",
        heading: TIMEOUTS,
        help: "How long the server behind may take for initialize",
        field: Field::Time(|l| &mut l.init_timeout, TICK),
    },
    Bound {
        name: "request-timeout",
        heading: TIMEOUTS,
        help: "How long the server behind may take for a request; progress starts it anew",
        field: Field::Time(|l| &mut l.request_timeout, TICK),
    },
    Bound {
        name: "request-timeout-max",
        heading: TIMEOUTS,
        help: "How long the server behind may take for a request, with all its progress",
        field: Field::Time(|l| &mut l.request_timeout_max, TICK),
    },
    Bound {
        name: "pause-timeout",
        heading: TIMEOUTS,
        help: "How long a producer may wait for a slow reader before that reader is cut",
        field: Field::Time(|l| &mut l.pause_timeout, TICK),
    },
    Bound {
        name: "server-request-timeout",
        heading: TIMEOUTS,
        help: "How long the client may take to answer a request of the server behind",
        field: Field::Time(|l| &mut l.server_request_timeout, TICK),
    },
    Bound {
        name: "drain-timeout",
        heading: TIMEOUTS,
        help: "How long open calls are served after SIGTERM",
        field: Field::Time(|l| &mut l.drain_timeout, NONE),
    },
    Bound {
        name: "stdin-bytes",
        heading: CHILDREN,
        help: "Size of what may wait for a child to read its stdin",
        field: Field::Size(|l| &mut l.stdin_bytes, KIB, GIB),
    },
    Bound {
        name: "child-grace",
        heading: CHILDREN,
        help: "How long a child may take to exit: after the end of its stdin, and after SIGTERM",
        field: Field::Time(|l| &mut l.child_grace, NONE),
    },
    Bound {
        name: "data-bytes",
        heading: DATA,
        help: "Size of the log on disk, for the whole process; the oldest goes",
        field: Field::WideSize(|l| &mut l.data_bytes, KIB, 1024 * 1024 * GIB),
    },
    Bound {
        name: "data-age",
        heading: DATA,
        help: "How long an event is kept on disk",
        field: Field::Time(|l| &mut l.data_age, TICK),
    },
    Bound {
        name: "segment-bytes",
        heading: DATA,
        help: "Size of one file of the log",
        field: Field::WideSize(|l| &mut l.segment_bytes, KIB, SEGMENT_BYTES_MAX),
    },
    Bound {
        name: "stream-disk-bytes",
        heading: DATA,
        help: "Size of one stream's log on disk; --stream-bytes of it stay in memory",
        field: Field::WideSize(|l| &mut l.stream_disk_bytes, KIB, 1024 * GIB),
    },
];

impl Bound {
    /// The word that stands for the value in the help.
    pub(super) fn value_name(&self) -> &'static str {
        match self.field {
            Field::Count(..) | Field::Events(..) => "N",
            Field::Size(..) | Field::WideSize(..) => "SIZE",
            Field::Time(..) => "TIME",
        }
    }

    /// The value that `limits` holds, as it would be typed.
    pub(super) fn show(&self, limits: &mut Limits) -> String {
        match self.field {
            Field::Count(at, ..) => at(limits).to_string(),
            Field::Events(at, ..) => at(limits).to_string(),
            Field::Size(at, ..) => size(*at(limits) as u64),
            Field::WideSize(at, ..) => size(*at(limits)),
            Field::Time(at, _) => time(*at(limits)),
        }
    }

    /// What may be typed, for an error line.
    pub(super) fn allowed(&self) -> String {
        match self.field {
            Field::Count(_, min, max) => format!("a number from {min} to {max}"),
            Field::Events(_, min, max) => format!("a number from {min} to {max}"),
            Field::Size(_, min, max) | Field::WideSize(_, min, max) => {
                format!("a size from {} to {}, such as 64KiB or 8MiB", size(min), size(max))
            }
            Field::Time(_, min) => {
                format!("a time from {} to 365days, such as 250ms, 15s or 5m", time(min))
            }
        }
    }

    /// Puts what was typed into `limits`; `None` when it is not [`Bound::allowed`].
    pub(super) fn set(&self, limits: &mut Limits, typed: &str) -> Option<()> {
        match self.field {
            Field::Count(at, min, max) => {
                *at(limits) = within(typed.parse().ok()?, min, max)?;
            }
            Field::Events(at, min, max) => {
                *at(limits) = within(typed.parse().ok()?, min, max)?;
            }
            Field::Size(at, min, max) => {
                let bytes = within(typed.parse::<ByteSize>().ok()?.as_u64(), min, max)?;
                *at(limits) = usize::try_from(bytes).ok()?;
            }
            Field::WideSize(at, min, max) => {
                *at(limits) = within(typed.parse::<ByteSize>().ok()?.as_u64(), min, max)?;
            }
            Field::Time(at, min) => {
                *at(limits) = within(humantime::parse_duration(typed).ok()?, min, TIME_MAX)?;
            }
        }
        Some(())
    }
}

fn within<T: PartialOrd>(value: T, min: T, max: T) -> Option<T> {
    (min <= value && value <= max).then_some(value)
}

/// Bytes in the largest binary unit that divides them, so that nothing is rounded.
fn size(bytes: u64) -> String {
    let units = [(GIB, "GiB"), (KIB * KIB, "MiB"), (KIB, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

fn time(span: Duration) -> String {
    humantime::format_duration(span).to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the help shows as the default can be typed and means the default.
    #[test]
    fn a_shown_default_can_be_typed_back() {
        for bound in BOUNDS {
            let shown = bound.show(&mut Limits::default());
            let mut limits = Limits::default();
            assert!(bound.set(&mut limits, &shown).is_some(), "--{} {shown}", bound.name);
            let after = format!("{limits:?}");
            assert_eq!(after, format!("{:?}", Limits::default()), "--{} {shown}", bound.name);
        }
    }

    /// Every field of `Limits` has its flag, under the field's own name.
    #[test]
    fn every_field_has_one_flag() {
        let shown = format!("{:?}", Limits::default());
        let fields = shown.matches(": ").count();
        assert_eq!(fields, BOUNDS.len(), "{shown}");
        for bound in BOUNDS {
            let field = format!(" {}: ", bound.name.replace('-', "_"));
            assert_eq!(shown.matches(&field).count(), 1, "--{} has no field", bound.name);
        }
    }

    /// Each flag moves its own field: two rows that shared one would go unseen otherwise.
    #[test]
    fn a_flag_moves_its_own_field_alone() {
        let fields = |limits: &Limits| -> Vec<String> {
            format!("{limits:?}").split(", ").map(str::to_owned).collect()
        };
        for bound in BOUNDS {
            let typed = match bound.field {
                Field::Time(..) => "17m",
                Field::Size(..) | Field::WideSize(..) => "3MiB",
                _ => "77",
            };
            let mut limits = Limits::default();
            bound.set(&mut limits, typed).expect(bound.name);
            let (before, after) = (fields(&Limits::default()), fields(&limits));
            let moved: Vec<_> = before.iter().zip(&after).filter(|(b, a)| b != a).collect();
            assert_eq!(moved.len(), 1, "--{}: {moved:?}", bound.name);
            assert!(moved[0].1.contains(&bound.name.replace('-', "_")), "{moved:?}");
        }
    }

    #[test]
    fn sizes_times_and_counts_are_read_as_the_help_says() {
        let read = |name: &str, typed: &str| {
            let bound = BOUNDS.iter().find(|bound| bound.name == name).unwrap();
            let mut limits = Limits::default();
            bound.set(&mut limits, typed).map(|()| limits)
        };
        assert_eq!(read("body-bytes", "64KiB").unwrap().body_bytes, 65_536);
        assert_eq!(read("body-bytes", "4096").unwrap().body_bytes, 4096);
        assert_eq!(read("stream-bytes", "2GiB").unwrap().stream_bytes, 2 << 30);
        assert_eq!(read("retention", "250ms").unwrap().retention, Duration::from_millis(250));
        assert_eq!(read("retention", "5m").unwrap().retention, Duration::from_secs(300));
        for (name, typed) in [
            ("body-bytes", "1023"),
            ("body-bytes", "2GiB"),
            ("body-bytes", "-1"),
            ("body-bytes", "many"),
            ("body-bytes", "NaN"),
            ("connections", "0"),
            ("connections", "1.5"),
            ("retention", "15"),
            ("retention", "366days"),
            ("retention", "-1s"),
            ("head-timeout", "0s"),
            ("head-timeout", ""),
        ] {
            assert!(read(name, typed).is_none(), "--{name} {typed} was accepted");
        }
    }
}
