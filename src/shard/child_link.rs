//! What a child does, told to its session.

use std::rc::{Rc, Weak};

use tracing::{info, warn};

use crate::upstream::child::{Child, ChildEvents};
use crate::upstream::spawner::Pipes;

use super::Shard;
use super::live::Live;

/// From a child to its session; the session may be gone.
struct Link {
    shard: Rc<Shard>,
    live: Weak<Live>,
}

/// A child's process is there: its pipes are read from now on.
pub(super) fn start(shard: &Rc<Shard>, live: &Rc<Live>, pipes: Pipes) {
    let link = Link { shard: Rc::clone(shard), live: Rc::downgrade(live) };
    let name = live.short.to_string();
    let settings = live.look(|session| Rc::clone(session.settings()));
    match Child::start(pipes, &settings.limits, Rc::new(link), name) {
        Ok(child) => {
            shard.counters.children_started.increment();
            live.set_child(shard, child);
        }
        Err(error) => {
            warn!(session = %live.short, %error, "the child's pipes cannot be used");
            live.handle_child_gone(shard, "the server could not be started");
        }
    }
}

impl ChildEvents for Link {
    fn line(&self, line: &[u8]) {
        if let Some(live) = self.live.upgrade() {
            live.handle_child_line(&self.shard, line);
        }
    }

    fn line_too_long(&self, bytes_so_far: usize, head: &[u8]) {
        let Some(live) = self.live.upgrade() else { return };
        if self.shard.may_log() {
            let head = head.escape_ascii();
            warn!(session = %live.short, bytes_so_far, %head, "a line of the server is too long");
        }
        live.handle_child_line_lost(&self.shard, head);
    }

    fn written(&self, bytes: usize) {
        if let Some(live) = self.live.upgrade() {
            live.handle_child_written(bytes);
        }
    }

    fn exited(&self, how: &str) {
        self.shard.counters.children_exited.increment();
        let Some(live) = self.live.upgrade() else { return };
        info!(session = %live.short, how, "child exited");
        live.handle_child_gone(&self.shard, &format!("the server exited: {how}"));
    }
}
