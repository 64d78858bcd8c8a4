//! The two tasks that drive a shard: time and work, and the mailbox.

use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use tracing::error;

use crate::limits::SLICE_TIME_MAX;
use crate::net::conn;

use super::handoff::Letter;
use super::mailbox::Receiver;
use super::state::Work;
use super::{Shard, task};

/// Turns the wheel when something is due, and lets sessions with work produce, a slice each,
/// yielding through the ring so that sockets and timers are served in between.
pub async fn drive(shard: Rc<Shard>) {
    loop {
        let now = Instant::now();
        shard.expire(now);
        if run_slices(&shard) {
            shard.yielder.yield_now().await;
            continue;
        }
        let until = shard.next_timer(now);
        shard.sleeps_until.set(until);
        if !shard.changed.take() {
            match until {
                Some(at) => {
                    let sleep = pin!(monoio::time::sleep_until(at.into()));
                    shard.changed.or(sleep).await;
                }
                None => shard.changed.raised().await,
            }
            shard.changed.take();
        }
        shard.sleeps_until.set(Some(now));
    }
}

/// Works for one slice of time; says whether there is more to do.
fn run_slices(shard: &Rc<Shard>) -> bool {
    let start = Instant::now();
    while let Some(work) = shard.next_work() {
        match work {
            Work::Session(live) => live.run(shard),
            Work::Relief => shard.relieve(),
            Work::Producer(key) => {
                let more = task::contain("producer", || shard.producers.drain(shard, key));
                if more == Some(true) {
                    shard.add_work(Work::Producer(key));
                }
            }
        }
        if start.elapsed() >= SLICE_TIME_MAX {
            return true;
        }
    }
    false
}

/// Takes letters out of the mailbox: it only spawns or sets flags, and never waits for another
/// shard.
pub async fn read_mail(shard: Rc<Shard>, mut receiver: Receiver<Letter>) {
    loop {
        while let Some(letter) = receiver.pop() {
            match letter {
                Letter::Connection(arrived) => conn::start(&shard, *arrived),
                Letter::Producer(key) => shard.add_work(Work::Producer(key)),
                Letter::Dump => {
                    task::contain("dump", || super::dump::dump(&shard));
                }
                Letter::Ask(ask) => {
                    task::contain("ask", || ask(&shard));
                }
                Letter::Kill => super::drain::kill_children(&shard),
                Letter::Drain(deadline) => {
                    let drain = super::drain::drain(Rc::clone(&shard), deadline);
                    task::spawn("drain", drain, || {});
                }
            }
        }
        if let Err(error) = receiver.wait().await {
            error!(%error, "the mailbox cannot be read; the process cannot go on");
            std::process::abort();
        }
    }
}
