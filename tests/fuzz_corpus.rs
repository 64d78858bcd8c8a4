//! The fuzz targets without a fuzzer: every file of `fuzz/corpus`, and inputs made from them under
//! a fixed seed, must hold. See `fuzz/README.md`.

#[path = "../fuzz/src/properties/mod.rs"]
mod properties;

// What the properties use of the simulator.
#[path = "sim/check.rs"]
mod check;
#[allow(dead_code, reason = "the simulator uses the rest")]
#[path = "sim/coverage.rs"]
mod coverage;
#[allow(dead_code, reason = "the simulator uses the rest")]
#[path = "sim/durable.rs"]
mod durable;
#[allow(dead_code, reason = "the simulator uses the rest")]
#[path = "sim/oracle.rs"]
mod oracle;
#[allow(dead_code, reason = "the simulator uses the rest")]
#[path = "sim/receipts.rs"]
mod receipts;
#[allow(dead_code, reason = "the simulator uses the rest")]
#[path = "sim/rng.rs"]
mod rng;

use std::fs;
use std::path::{Path, PathBuf};

use properties::{TARGETS, Target};
use rng::{Concern, Rng};

/// Files of one target's corpus.
const FILES_MAX: usize = 64;
/// Bytes of one file, and of an input made here.
const FILE_BYTES_MAX: usize = 4 * 1024;
/// Bytes of the whole corpus.
const CORPUS_BYTES_MAX: usize = 500 * 1024;
/// Inputs made for one target.
const MADE: u64 = 1000;

/// The files of a target's corpus, in the order of their names.
fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name);
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("a corpus")
        .map(|entry| entry.expect("an entry of the corpus").path())
        .map(|path| (path.clone(), fs::read(path).expect("a file of the corpus")))
        .collect();
    files.sort();
    files
}

/// Prints the input of a property that panics.
struct Shown<'a>(&'a str, &'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input of `{}` was b\"{}\"", self.0, self.1.escape_ascii());
        }
    }
}

fn must_hold(target: &Target, input: &[u8]) {
    let _shown = Shown(target.name, input);
    (target.holds)(input);
}

/// An input like those of the corpus, with bytes set, doubled, removed, or taken from another.
fn made(rng: &mut Rng, corpus: &[(PathBuf, Vec<u8>)]) -> Vec<u8> {
    let any = |rng: &mut Rng| rng.pick(corpus).map(|file| file.1.clone()).unwrap_or_default();
    let mut input = if rng.once_in(8) { Vec::new() } else { any(rng) };
    for _ in 0..rng.between(1, 6) {
        let at = rng.between(0, input.len() as u64) as usize;
        let end = (at + rng.skewed(16) as usize).min(input.len());
        match rng.between(0, 4) {
            0 => input.insert(at, rng.next() as u8),
            1 => drop(input.drain(at..end)),
            2 => input.extend_from_within(at..end),
            3 if at < end => input[at] = rng.next() as u8,
            _ => {
                let other = any(rng);
                let from = rng.between(0, other.len() as u64) as usize;
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
    input.truncate(FILE_BYTES_MAX);
    input
}

fn replay(name: &str) {
    let (number, target) =
        (0..).zip(&TARGETS).find(|(_, target)| target.name == name).expect("a target of that name");
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "an empty corpus replays nothing");
    corpus.iter().for_each(|(_, input)| must_hold(target, input));
    let mut rng = Rng::new(number, Concern::Shape);
    (0..MADE).for_each(|_| must_hold(target, &made(&mut rng, &corpus)));
}

#[test]
fn request_head_holds() {
    replay("request_head");
}

#[test]
fn chunked_holds() {
    replay("chunked");
}

#[test]
fn sse_decode_holds() {
    replay("sse_decode");
}

#[test]
fn jsonrpc_splice_holds() {
    replay("jsonrpc_splice");
}

#[test]
fn event_id_holds() {
    replay("event_id");
}

#[test]
fn stream_holds() {
    replay("stream");
}

#[test]
fn wal_recovery_holds() {
    replay("wal_recovery");
}

#[test]
fn the_corpus_stays_small() {
    let mut bytes = 0;
    for target in &TARGETS {
        let files = corpus(target);
        assert!(files.len() <= FILES_MAX, "{}: {} files", target.name, files.len());
        for (path, input) in files {
            assert!(input.len() <= FILE_BYTES_MAX, "{}: {} bytes", path.display(), input.len());
            bytes += input.len();
        }
    }
    assert!(bytes <= CORPUS_BYTES_MAX, "{bytes} bytes");
}
