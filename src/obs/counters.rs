//! What happened, in numbers: one set per shard, summed when somebody asks.
//!
//! Invariant: one thread writes a set, any thread may read it. That makes a relaxed load and store
//! enough (no locked instruction on the way of a request), and each set stands on cache lines of
//! its own so that shards do not slow each other down. A reader sees each number as it was a
//! moment ago, and not all of the same moment.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::prometheus::Family;
use crate::stream::resume::Class;

/// A number that its one writer lets grow.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the thread that owns the set may call this: two writers lose counts.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds one; see [`Counter::add`].
    pub fn increment(&self) {
        self.add(1);
    }

    /// The number now; from any thread.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a request was; index of [`ShardCounters::requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// POST with `initialize`.
    Initialize,
    /// POST with `tools/call`.
    ToolsCall,
    /// POST with any other JSON-RPC request.
    OtherCall,
    /// POST with a notification.
    Notification,
    /// POST with a response to a request of the upstream.
    Response,
    /// POST with a batch array.
    Batch,
    /// GET without a cursor.
    Get,
    /// GET with `Last-Event-ID`.
    Resume,
    /// DELETE.
    Delete,
    /// Everything else, refused before its meaning was known.
    Unread,
}

impl RequestKind {
    /// Every kind, by index.
    pub const ALL: [Self; 10] = [
        Self::Initialize,
        Self::ToolsCall,
        Self::OtherCall,
        Self::Notification,
        Self::Response,
        Self::Batch,
        Self::Get,
        Self::Resume,
        Self::Delete,
        Self::Unread,
    ];

    /// The name in the line of totals.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::ToolsCall => "tools_call",
            Self::OtherCall => "other_call",
            Self::Notification => "notification",
            Self::Response => "response",
            Self::Batch => "batch",
            Self::Get => "get",
            Self::Resume => "resume",
            Self::Delete => "delete",
            Self::Unread => "unread",
        }
    }
}

/// The status of a refusal; index of [`ShardCounters::refusals`]. 0 stands for any other.
const REFUSALS: [u16; 14] = [400, 401, 403, 404, 405, 406, 408, 410, 413, 415, 431, 500, 503, 0];

fn refusal_name(status: u16) -> String {
    if status == 0 { "other".to_owned() } else { status.to_string() }
}

/// Declares each counter once: its field in both structs, its place in the sum and in the line.
macro_rules! counters {
    (
        single { $($(#[doc = $doc:literal])* $name:ident,)* }
        grouped {
            $(
                $(#[doc = $group_doc:literal])*
                $group:ident: $all:path, $label:path, $key:literal;
            )*
        }
    ) => {
        /// The counters of one shard.
        #[derive(Debug, Default)]
        pub struct ShardCounters {
            $($(#[doc = $doc])* pub $name: Counter,)*
            $($(#[doc = $group_doc])* pub $group: [Counter; $all.len()],)*
        }

        /// The sum over all shards.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[doc = $doc])* pub $name: u64,)*
            $($(#[doc = $group_doc])* pub $group: [u64; $all.len()],)*
            /// Log lines dropped because their writer was slow; the process's, not a shard's.
            pub log_lines_lost: u64,
        }

        impl Totals {
            fn add(&mut self, shard: &ShardCounters) {
                $(self.$name += shard.$name.get();)*
                $(for (sum, part) in self.$group.iter_mut().zip(&shard.$group) {
                    *sum += part.get();
                })*
            }

            /// Calls `each` with the name and the value of every counter, in the order of the
            /// declaration. The name of one of a group is `group.label`.
            pub fn for_each(&self, mut each: impl FnMut(&str, u64)) {
                $(each(stringify!($name), self.$name);)*
                $(for (item, value) in $all.into_iter().zip(self.$group) {
                    each(&format!("{}.{}", stringify!($group), $label(item)), value);
                })*
                each("log_lines_lost", self.log_lines_lost);
            }

            /// Calls `each` with every counter as a metric; the help is its documentation.
            pub fn for_each_family(&self, mut each: impl FnMut(&Family<'_>)) {
                let name = |name: &str| format!("gapless_{name}");
                $(each(&Family {
                    name: name(stringify!($name)),
                    help: concat!($($doc),*).trim(),
                    label: "",
                    samples: vec![(String::new(), self.$name)],
                });)*
                $(each(&Family {
                    name: name(stringify!($group)),
                    help: concat!($($group_doc),*).trim(),
                    label: $key,
                    samples: $all
                        .into_iter()
                        .zip(self.$group)
                        .map(|(item, value)| ($label(item).to_string(), value))
                        .collect(),
                });)*
                each(&Family {
                    name: name("log_lines_lost"),
                    help: "Log lines dropped because their writer was slow",
                    label: "",
                    samples: vec![(String::new(), self.log_lines_lost)],
                });
            }
        }
    };
}

counters! {
    single {
        /// Connections accepted.
        connections_opened,
        /// Connections ended.
        connections_closed,
        /// Connections that moved to the shard of their request's session.
        connections_handed_off,
        /// Sessions made by `initialize`.
        sessions_started,
        /// Sessions ended: DELETE, idle, upstream gone, shutdown.
        sessions_ended,
        /// Streams made, standalone streams included.
        streams_started,
        /// Streams whose last event is in their log.
        streams_finished,
        /// Events appended to logs.
        events_appended,
        /// Bytes of those events, encoded.
        event_bytes_appended,
        /// Bytes read from clients.
        bytes_read,
        /// Bytes written to clients.
        bytes_written,
        /// Times a shard was over its part of the process's budget.
        reliefs,
        /// Times a session was over its budget.
        session_reliefs,
        /// Request bodies refused because there was no room for them in the budget.
        bodies_refused,
        /// Answers that became errors because there was no room for them in the budget.
        answers_refused,
        /// Calls and notifications refused because their child does not read fast enough.
        inputs_refused,
        /// Times a producer began to wait for a slow reader.
        pauses,
        /// Readers whose connection was closed because the log's window passed them.
        cuts,
        /// Gap markers sent to listeners without a cursor.
        gap_markers,
        /// Child processes started.
        children_started,
        /// Child processes whose exit was seen.
        children_exited,
        /// Tasks that panicked and were contained.
        panics,
    }
    grouped {
        /// Requests, by what they were.
        requests: RequestKind::ALL, RequestKind::name, "kind";
        /// Resumes by class, served and refused.
        resumes: Class::ALL, Class::name, "class";
        /// Requests refused, by their HTTP status.
        refusals: REFUSALS, refusal_name, "status";
    }
}

/// A shard's set, shared with whoever reads it.
pub type SharedCounters = Arc<CachePadded<ShardCounters>>;

/// A new set, all zero.
pub fn new_shared() -> SharedCounters {
    Arc::new(CachePadded::new(ShardCounters::default()))
}

impl ShardCounters {
    /// Counts a request.
    pub fn request(&self, kind: RequestKind) {
        increment(&self.requests, kind as usize);
    }

    /// Counts a resume, served or refused.
    pub fn resume(&self, class: Class) {
        increment(&self.resumes, class as usize);
    }

    /// Counts a request that was refused with `status`.
    pub fn refusal(&self, status: u16) {
        let known = REFUSALS.iter().position(|refusal| *refusal == status);
        increment(&self.refusals, known.unwrap_or(REFUSALS.len() - 1));
    }
}

fn increment(group: &[Counter], index: usize) {
    debug_assert!(index < group.len(), "no counter {index}");
    if let Some(counter) = group.get(index) {
        counter.increment();
    }
}

impl Totals {
    /// Sums the sets of all shards.
    pub fn sum<'a>(
        shards: impl IntoIterator<Item = &'a SharedCounters>,
        log_lines_lost: u64,
    ) -> Self {
        let mut totals = Totals { log_lines_lost, ..Totals::default() };
        for shard in shards {
            totals.add(shard);
        }
        totals
    }

    /// Logs the line of the shutdown.
    pub fn log(&self) {
        tracing::info!("totals {self}");
    }
}

/// One line, `name=value` with spaces between. The counters of a group stand there where they are
/// not 0.
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        self.for_each(|name, value| {
            if value != 0 || !name.contains('.') {
                words.push(format!("{name}={value}"));
            }
        });
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_sum_of_the_shards() {
        let shards = [new_shared(), new_shared()];
        shards[0].events_appended.add(40);
        shards[1].events_appended.add(2);
        shards[0].request(RequestKind::ToolsCall);
        shards[1].request(RequestKind::ToolsCall);
        shards[1].request(RequestKind::Unread);
        shards[1].resume(Class::Unknown);
        shards[0].refusal(410);
        shards[0].refusal(418);
        let totals = Totals::sum(&shards, 3);
        assert_eq!(totals.events_appended, 42);
        let line = totals.to_string();
        for word in [
            "events_appended=42",
            "cuts=0",
            "requests.tools_call=2",
            "requests.unread=1",
            "resumes.unknown=1",
            "refusals.410=1",
            "refusals.other=1",
            "log_lines_lost=3",
        ] {
            assert!(line.split(' ').any(|found| found == word), "{word} is not in {line}");
        }
        assert!(!line.contains("resumes.aligned") && !line.contains('\n'), "{line}");
    }

    /// A kind or class is counted under its own name, not under its neighbour's.
    #[test]
    fn each_of_a_group_is_counted_under_its_own_name() {
        let counted = |count: &dyn Fn(&ShardCounters)| {
            let set = new_shared();
            count(&set);
            let mut names = Vec::new();
            Totals::sum([&set], 0).for_each(|name, value| {
                names.extend((value != 0).then(|| name.to_owned()));
            });
            names
        };
        for kind in RequestKind::ALL {
            assert_eq!(counted(&|set| set.request(kind)), [format!("requests.{}", kind.name())]);
        }
        for class in Class::ALL {
            assert_eq!(counted(&|set| set.resume(class)), [format!("resumes.{}", class.name())]);
        }
        for status in [400, 431, 503] {
            assert_eq!(counted(&|set| set.refusal(status)), [format!("refusals.{status}")]);
        }
    }

    /// The names are part of what operators search their logs for: none twice.
    #[test]
    fn every_name_is_told_apart() {
        let mut names = std::collections::BTreeSet::new();
        Totals::default().for_each(|name, _| assert!(names.insert(name.to_owned()), "{name}"));
        assert!(names.len() > 40);
    }

    #[test]
    fn sets_do_not_share_a_cache_line() {
        assert!(std::mem::align_of::<CachePadded<ShardCounters>>() >= 64);
    }
}
