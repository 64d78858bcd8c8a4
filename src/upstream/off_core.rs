//! The demo's off-core producer: a thread that floods one call's stream through its handle.
//!
//! It shows the way for any producer that must not run on a shard, and loads that way in tests.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::mcp::jsonrpc;
use crate::stream::outbound::{NotTaken, OutboundStream};

use super::builtin::push_padded_params;
use super::builtin::tools::Flood;

/// Producer threads of the process at one time.
const THREADS_MAX: usize = 64;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Starts the thread. Errors: there are as many as there may be, or the system has none left.
pub fn start(out: OutboundStream, flood: Flood) -> io::Result<()> {
    if THREADS.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
        THREADS.fetch_sub(1, Ordering::Relaxed);
        return Err(io::Error::new(io::ErrorKind::WouldBlock, "too many producer threads"));
    }
    let started = thread::Builder::new().name("producer".into()).spawn(move || {
        // Closed: the call was cancelled or its session ended, and nobody wants the rest.
        let _: Result<(), NotTaken> = produce(&out, flood);
        THREADS.fetch_sub(1, Ordering::Relaxed);
    });
    started.map(drop).inspect_err(|_| {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    })
}

fn produce(out: &OutboundStream, flood: Flood) -> Result<(), NotTaken> {
    out.start()?;
    let mut params = Vec::new();
    for seq in 1..=flood.count {
        params.clear();
        push_padded_params(&mut params, seq, flood.size);
        let mut message = Vec::with_capacity(params.len() + 64);
        jsonrpc::event(&mut message, "notifications/message", &params);
        out.write_event(message)?;
        if !flood.interval.is_zero() {
            thread::sleep(flood.interval);
        }
    }
    let count = flood.count;
    let text = format!(r#"{{"content":[{{"type":"text","text":"{count} events sent"}}]}}"#);
    Ok(out.respond(text)?)
}
