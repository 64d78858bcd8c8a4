//! The summary of a run, as one table.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::run::{Stats, Upstream};
use crate::server::Holdings;

/// What a run found.
pub struct Report {
    /// What was behind the server.
    pub upstream: Upstream,
    /// The seed.
    pub seed: u64,
    /// How long the load took, with its ends.
    pub seconds: f64,
    /// What the clients saw.
    pub stats: Stats,
    /// What the server held, and when.
    pub holdings: Vec<(&'static str, Holdings)>,
    /// Streams of the storm, and the time to the last one that had caught up.
    pub storm: Option<(usize, Duration)>,
    /// The server's own counters.
    pub totals: BTreeMap<String, u64>,
    /// The number of faults.
    pub faults: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: String| writeln!(f, "{name:28} {value}");
        let stats = &self.stats;
        row("upstream, seed", format!("{:?}, {}", self.upstream, self.seed))?;
        row("seconds of load", format!("{:.1}", self.seconds))?;
        let rate = stats.events as f64 / self.seconds;
        row("events checked", format!("{}, {rate:.0} a second", stats.events))?;
        row("stream bytes", format!("{:.1} MiB", stats.bytes as f64 / 1048576.0))?;
        for (name, count) in &stats.counts {
            row(name, count.to_string())?;
        }
        for (name, times) in &stats.times {
            let [p50, p99, p999] =
                [0.5, 0.99, 0.999].map(|q| times.value_at_quantile(q) as f64 / 1000.0);
            let (max, count) = (times.max() as f64 / 1000.0, times.len());
            let value = format!("{p50:.2} / {p99:.2} / {p999:.2} / {max:.2} ms of {count}");
            row(&format!("{name}, p50/99/99.9/max"), value)?;
        }
        for (class, count) in &stats.refusals {
            row(&format!("refused: {class}"), count.to_string())?;
        }
        if let Some((streams, time)) = self.storm {
            let value = format!("{:.3} s to the last caught-up one", time.as_secs_f64());
            row(&format!("storm of {streams} streams"), value)?;
        }
        for (when, held) in &self.holdings {
            let Holdings { fds, children, threads, memory_kib, sessions } = held;
            let value = format!(
                "{fds} files, {threads} threads, {children} children, {sessions} sessions, \
                 {memory_kib} KiB"
            );
            row(when, value)?;
        }
        let told: Vec<_> =
            self.totals.iter().map(|(name, value)| format!("{name}={value}")).collect();
        row("the server's totals", told.join(" "))?;
        row("faults", self.faults.to_string())
    }
}
