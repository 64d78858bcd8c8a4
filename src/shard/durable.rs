//! A shard whose sessions outlive the process.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tracing::{info, warn};

use crate::config::UpstreamConfig;
use crate::session::Session;
use crate::session::table::IdHasher;
use crate::store::recovery::RecoveredSession;
use crate::store::wal::Wal;
use crate::upstream::behind::Behind;
use crate::upstream::in_process::InProcess;
use crate::upstream::piped::Piped;

use super::live::Live;
use super::timer::Owner;
use super::{Shard, task};

/// How often a shard looks whether a segment has to go.
const RETIRE_INTERVAL: Duration = Duration::from_secs(5);
/// Sessions that are looked at for one segment before others have their turn.
const RETIRE_SLICE: usize = 32;

/// What a shard has beside its log.
#[derive(Default)]
pub(super) struct Kept {
    by_slot: RefCell<HashMap<u32, Rc<Live>, BuildHasherDefault<IdHasher>>>,
    /// Streams that have just been committed; empty between two commits.
    woken: RefCell<Vec<(u32, u32)>>,
    retiring: Cell<bool>,
}

impl Shard {
    /// Its log on the disk, where it has one.
    pub fn wal(&self) -> Option<&Rc<Wal>> {
        self.wal.as_ref()
    }

    /// Something may have been journaled.
    pub(super) fn write_log(&self) {
        if let Some(wal) = &self.wal
            && wal.journal().borrow().pending_bytes() > 0
        {
            wal.wake();
        }
    }

    /// Whether the log takes nothing any more.
    pub fn log_failed(&self) -> bool {
        self.wal.as_ref().is_some_and(|wal| wal.journal().borrow().is_poisoned())
    }

    /// A session whose slot in the log is known.
    pub(super) fn keep_slot(&self, live: &Rc<Live>) {
        if let Some(slot) = live.look(Session::slot) {
            live.slot.set(Some(slot));
            self.kept.by_slot.borrow_mut().insert(slot, Rc::clone(live));
        }
    }

    /// The session is over.
    pub(super) fn forget_slot(&self, live: &Live) {
        if let Some(slot) = live.slot.take() {
            self.kept.by_slot.borrow_mut().remove(&slot);
        }
    }

    /// Writes have been committed: what was logged in them goes out.
    pub fn handle_committed(&self, wal: &Wal) {
        let mut woken = self.kept.woken.take();
        wal.journal().borrow_mut().take_committed(&mut woken);
        for (slot, stream) in woken.drain(..) {
            let live = self.kept.by_slot.borrow().get(&slot).cloned();
            if let Some(live) = live {
                live.handle_committed(stream);
            }
        }
        self.kept.woken.replace(woken);
    }

    /// The log takes more again.
    pub fn handle_log_room(self: &Rc<Self>) {
        for live in self.sessions() {
            live.handle_sent(self);
        }
    }

    /// The log takes nothing any more: streams end when what is safe has been sent.
    pub fn handle_log_failed(self: &Rc<Self>) {
        for live in self.sessions() {
            live.with(self, |session, _, _| session.handle_log_failed());
        }
        self.handle_log_room();
    }

    /// The sessions of an earlier process are there again.
    pub(super) fn restore(self: &Rc<Self>, sessions: Vec<RecoveredSession>) {
        let now = Instant::now();
        let mut restored = 0;
        for recovered in sessions {
            let servers = &self.process.config.servers;
            let server = servers.iter().position(|server| server.name == recovered.body.server);
            let Some(server) = server else {
                warn!(server = recovered.body.server, "a session's server is not served any more");
                Session::end_recovered(&recovered, self.settings(0));
                continue;
            };
            let (config, settings) = (&servers[server], self.settings(server as u16));
            let Some((session, told)) = Session::restore(recovered, Rc::clone(settings), now)
            else {
                continue;
            };
            if !self.has_place(&session.id()) {
                warn!(session = %session.id().short(), "a session is lost: its key is taken");
                continue;
            }
            let behind = match &config.upstream {
                UpstreamConfig::Builtin => {
                    Behind::InProcess(Box::new(InProcess::restored(now, &told)))
                }
                UpstreamConfig::Stdio { .. } => {
                    let most = config.limits.stdin_bytes;
                    let piped = Piped::restored(now, config.on_child_exit, most, &told);
                    Behind::Piped(Box::new(piped))
                }
            };
            self.process.sessions.fetch_add(1, Ordering::Relaxed);
            let live = self.register(session, behind);
            live.set_known();
            live.with(self, |_, _, _| ());
            restored += 1;
        }
        if restored > 0 {
            info!(shard = self.index, sessions = restored, "sessions go on");
        }
    }

    /// Looks for segments that have to go, now and from time to time.
    pub(super) fn retire_segments(self: &Rc<Self>) {
        self.insert_timer(Instant::now() + RETIRE_INTERVAL, Owner::Retire.into());
        self.retire_soon();
    }

    /// A segment has been filled, or time has passed.
    pub fn retire_soon(self: &Rc<Self>) {
        if self.wal.is_none() || self.kept.retiring.replace(true) {
            return;
        }
        let (shard, on_panic) = (Rc::clone(self), Rc::clone(self));
        let retire = async move {
            while shard.retire_oldest().await {}
            shard.kept.retiring.set(false);
        };
        task::spawn("retire", retire, move || on_panic.kept.retiring.set(false));
    }

    /// Makes the oldest segment go, if it has to: what must outlive it is logged again first.
    async fn retire_oldest(self: &Rc<Self>) -> bool {
        let Some(wal) = &self.wal else { return false };
        let limits = &self.limits;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = since_1970.unwrap_or_default().as_secs();
        let bytes = limits.data_bytes / self.process.mailboxes.len() as u64;
        let due = wal.journal().borrow_mut().retire(now, bytes, limits.data_age.as_secs());
        let Some(segment) = due else { return false };
        let slots: Vec<u32> = wal.journal().borrow().slots_in(segment).collect();
        for some in slots.chunks(RETIRE_SLICE) {
            for slot in some {
                let live = self.kept.by_slot.borrow().get(slot).cloned();
                if let Some(live) = live {
                    live.with_contained(self, |session, behind, now| {
                        session.handle_retired(now, segment, behind);
                    });
                }
            }
            self.yielder.yield_now().await;
        }
        if wal.journal().borrow().is_poisoned() {
            warn!(shard = self.index, segment, "the log has failed: no segment is removed");
            return false;
        }
        wal.journal().borrow_mut().remove(segment);
        wal.wake();
        // One at a time: the next is looked for when this one is gone.
        false
    }
}
