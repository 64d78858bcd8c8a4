//! Metrics as OpenMetrics text 1.0 (the exposition format that Prometheus reads).
//!
//! What is shown is a snapshot of numbers that others count, so there is no registry here: a
//! family is written with its help and type, then its samples.
//!
//! Invariants: a family is written once and whole; a counter's samples end in `_total`; the text
//! ends in `# EOF`.

use std::fmt::Write;

use super::counters::Totals;
use super::snapshot::ShardSnapshot;

/// The `Content-Type` of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What belongs to the process rather than to a shard.
#[derive(Clone, Copy, Debug)]
pub struct ProcessFacts {
    /// Unix time of the start, seconds.
    pub started: u64,
    /// Sessions that are alive, and how many may be.
    pub sessions: (usize, usize),
    /// Connections that are open, and how many may be.
    pub connections: (usize, usize),
}

/// The text of all metrics.
pub fn text(facts: &ProcessFacts, totals: &Totals, shards: &[ShardSnapshot]) -> String {
    let mut text = Text::default();
    text.info(
        "gapless_build",
        "The version of the program",
        ("version", env!("CARGO_PKG_VERSION")),
    );
    let started = facts.started as f64;
    text.gauge("gapless_start_time_seconds", "Unix time of the start", &[("", "", started)]);
    for (name, help, (now, most)) in [
        ("sessions", "Sessions that are alive", facts.sessions),
        ("connections", "Connections that are open", facts.connections),
    ] {
        text.gauge(&format!("gapless_{name}"), help, &[("", "", now as f64)]);
        let help = format!("The most that may be: {}", help.to_lowercase());
        text.gauge(&format!("gapless_{name}_limit"), &help, &[("", "", most as f64)]);
    }
    for_shards(&mut text, shards);
    totals.for_each_family(|family| text.counter(&family.name, family.help, family));
    text.0.push_str("# EOF\n");
    text.0
}

/// A gauge of every shard: its name, its help, and its value where the shard has one.
type OfShard = (&'static str, &'static str, fn(&ShardSnapshot) -> Option<f64>);

const OF_SHARD: [OfShard; 8] = [
    ("gapless_shard_sessions", "Sessions that the shard owns", |s| Some(s.sessions as f64)),
    ("gapless_shard_connections", "Connections that the shard serves", |s| {
        Some(s.connections as f64)
    }),
    ("gapless_shard_budget_bytes", "Bytes that the shard may hold", |s| {
        Some(s.budget_bytes as f64)
    }),
    ("gapless_shard_session_bytes", "Bytes that the shard's sessions hold", |s| {
        Some(s.session_bytes as f64)
    }),
    ("gapless_shard_transit_bytes", "Bytes of bodies, half-sent answers and unread input", |s| {
        Some(s.transit_bytes as f64)
    }),
    ("gapless_log_disk_bytes", "Bytes of the shard's durable log", |s| {
        s.log.as_ref().map(|log| log.disk_bytes as f64)
    }),
    ("gapless_log_pending_bytes", "Bytes that wait to be written to the durable log", |s| {
        s.log.as_ref().map(|log| log.pending_bytes as f64)
    }),
    ("gapless_log_healthy", "1 while the durable log takes what comes, else 0", |s| {
        s.log.as_ref().map(|log| f64::from(u8::from(log.fault.is_none() && !log.disk_full)))
    }),
];

fn for_shards(text: &mut Text, shards: &[ShardSnapshot]) {
    let indexes: Vec<String> = shards.iter().map(|shard| shard.shard.to_string()).collect();
    for (name, help, value) in OF_SHARD {
        let samples: Vec<_> = shards
            .iter()
            .zip(&indexes)
            .filter_map(|(shard, index)| Some(("shard", index.as_str(), value(shard)?)))
            .collect();
        if !samples.is_empty() {
            text.gauge(name, help, &samples);
        }
    }
}

/// A counter with its samples.
pub struct Family<'a> {
    /// Its name, without the `_total` of its samples.
    pub name: String,
    /// What it counts, one sentence.
    pub help: &'a str,
    /// The name of the label that tells its samples apart; empty where there is one sample.
    pub label: &'a str,
    /// The label's values with the numbers.
    pub samples: Vec<(String, u64)>,
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = escaped(help);
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, label: (&str, &str), value: impl std::fmt::Display) {
        let _ = match label {
            ("", _) => writeln!(self.0, "{name} {value}"),
            (key, word) => writeln!(self.0, "{name}{{{key}=\"{}\"}} {value}", escaped(word)),
        };
    }

    fn gauge(&mut self, name: &str, help: &str, samples: &[(&str, &str, f64)]) {
        self.head(name, "gauge", help);
        for (key, word, value) in samples {
            self.sample(name, (key, word), value);
        }
    }

    fn info(&mut self, name: &str, help: &str, label: (&str, &str)) {
        self.head(name, "info", help);
        self.sample(&format!("{name}_info"), label, 1);
    }

    fn counter(&mut self, name: &str, help: &str, family: &Family<'_>) {
        self.head(name, "counter", help);
        for (word, value) in &family.samples {
            self.sample(&format!("{name}_total"), (family.label, word), value);
        }
    }
}

/// As OpenMetrics writes a label's value or a help text.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::counters::{RequestKind, new_shared};
    use super::super::snapshot::LogSnapshot;
    use super::*;

    fn shown() -> String {
        let counters = new_shared();
        counters.request(RequestKind::ToolsCall);
        let log = LogSnapshot {
            disk_bytes: 64,
            pending_bytes: 3,
            disk_full: false,
            fault: Some("Write".into()),
        };
        let shard = ShardSnapshot {
            shard: 1,
            sessions: 2,
            connections: 3,
            draining: false,
            budget_bytes: 4,
            session_bytes: 5,
            transit_bytes: 6,
            log: Some(log),
        };
        let facts = ProcessFacts { started: 7, sessions: (2, 10), connections: (3, 20) };
        text(&facts, &Totals::sum([&counters], 0), &[shard])
    }

    /// What a reader of the format checks: each family's type and help once and before its
    /// samples, all samples of a family together, names of counters, no sample twice, the end.
    #[test]
    fn the_text_is_open_metrics() {
        let text = shown();
        let (body, end) = text.split_at(text.len() - "# EOF\n".len());
        assert_eq!(end, "# EOF\n");
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        let (mut helps, mut samples) = (BTreeSet::new(), BTreeSet::new());
        let mut family = "";
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert_eq!(kinds.insert(name, kind), None, "{name} twice");
                family = name;
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help");
                assert!(name == family && helps.insert(name) && !help.is_empty(), "{line}");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
                assert!(samples.insert(series), "{series} twice");
                let name = series.split('{').next().expect("a name");
                let expected = match kinds[family] {
                    "counter" => format!("{family}_total"),
                    "info" => format!("{family}_info"),
                    _ => family.to_owned(),
                };
                assert_eq!(name, expected);
                assert!(
                    name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
                );
            }
        }
        assert!(kinds.len() > 30 && helps.len() == kinds.len(), "{text}");
    }

    #[test]
    fn numbers_stand_under_their_names() {
        let text = shown();
        for line in [
            "gapless_sessions 2",
            "gapless_connections_limit 20",
            "gapless_shard_session_bytes{shard=\"1\"} 5",
            "gapless_log_healthy{shard=\"1\"} 0",
            "gapless_requests_total{kind=\"tools_call\"} 1",
            "gapless_refusals_total{status=\"410\"} 0",
            "gapless_log_lines_lost_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
