//! What other threads put before a shard: connections that move to it, and commands.
//!
//! Two bounded lock-free queues and one [`Doorbell`]. Connections have their own queue, with room
//! for every connection that the process may have: a connection is in one place only, so that
//! queue is never full, and moving one never fails or waits. A full command queue is told to the
//! sender, which decides; no shard waits for another.
//!
//! The owner's drain loop only spawns or queues what it takes out. It never pushes to a mailbox,
//! parses or awaits: otherwise two shards could wait for each other.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use monoio::fs::File;

use super::doorbell::Doorbell;
use crate::limits::MAILBOX_COMMANDS_MAX;

/// The sending side, shared by all threads; `T` is the shard's command type, hand-offs included.
pub struct Mailbox<T> {
    handoffs: ArrayQueue<T>,
    commands: ArrayQueue<T>,
    doorbell: Doorbell,
    has_receiver: AtomicBool,
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("handoffs", &self.handoffs.len())
            .field("commands", &self.commands.len())
            .finish_non_exhaustive()
    }
}

impl<T> Mailbox<T> {
    /// A mailbox of a process that admits at most `connections` at one time. Errors: no descriptor
    /// is left.
    pub fn new(connections: usize) -> io::Result<Arc<Self>> {
        Self::with_capacity(connections, MAILBOX_COMMANDS_MAX)
    }

    fn with_capacity(connections: usize, commands: usize) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            handoffs: ArrayQueue::new(connections.max(1)),
            commands: ArrayQueue::new(commands),
            doorbell: Doorbell::new()?,
            has_receiver: AtomicBool::new(false),
        }))
    }

    /// Queues a connection that moves to this shard.
    ///
    /// # Panics
    /// If more connections are queued than the process admits: the admission is broken.
    pub fn hand_off(&self, connection: T) {
        let pushed = self.handoffs.push(connection).is_ok();
        assert!(pushed, "more connections are moving than were admitted");
        self.doorbell.ring();
    }

    /// Queues a command; `Err` gives it back when [`MAILBOX_COMMANDS_MAX`] are waiting.
    pub fn try_send(&self, command: T) -> Result<(), T> {
        self.commands.push(command)?;
        self.doorbell.ring();
        Ok(())
    }

    /// The owner's side; called once, on the owning thread, inside its runtime. Errors: there is a
    /// receiver already, or no descriptor is left.
    pub fn receiver(self: &Arc<Self>) -> io::Result<Receiver<T>> {
        if self.has_receiver.swap(true, Ordering::AcqRel) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "this mailbox has a receiver already",
            ));
        }
        let signal = File::from_std(self.doorbell.try_clone_fd()?.into())?;
        Ok(Receiver { mailbox: self.clone(), signal, count: Box::default() })
    }

    fn is_empty(&self) -> bool {
        self.handoffs.is_empty() && self.commands.is_empty()
    }
}

/// The owner's side; it stays on the thread that made it.
pub struct Receiver<T> {
    mailbox: Arc<Mailbox<T>>,
    signal: File,
    /// Where the kernel writes the eventfd's count; lent to it during a wait.
    count: Box<[u8]>,
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.mailbox).finish()
    }
}

impl<T> Receiver<T> {
    /// Takes the next item: connections first, then commands, each in its order of arrival.
    pub fn pop(&mut self) -> Option<T> {
        self.mailbox.handoffs.pop().or_else(|| self.mailbox.commands.pop())
    }

    /// Waits until something is in the mailbox; it may also return without.
    ///
    /// It must be awaited to its end: a dropped wait leaves a read behind in the kernel, which
    /// would take the next signal. Errors: the ring refuses the read.
    pub async fn wait(&mut self) -> io::Result<()> {
        if !self.mailbox.is_empty() {
            return Ok(());
        }
        self.mailbox.doorbell.arm();
        // The second look: what came before the arming has rung nobody.
        if !self.mailbox.is_empty() {
            return Ok(());
        }
        if self.count.len() != size_of::<u64>() {
            self.count = Box::new([0; size_of::<u64>()]);
        }
        let (read, count) = self.signal.read_at(std::mem::take(&mut self.count), 0).await;
        self.count = count;
        read.map(drop)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::shard::run;

    #[test]
    fn everything_that_two_threads_send_arrives_in_order() {
        const EACH: u32 = 20_000;
        let mailbox = Mailbox::with_capacity(8, 64).expect("made");
        let senders = [0, 1].map(|who| {
            let mailbox = mailbox.clone();
            std::thread::spawn(move || {
                for i in 0..EACH {
                    let mut item = (who, i);
                    while let Err(back) = mailbox.try_send(item) {
                        item = back;
                        std::thread::yield_now();
                    }
                }
            })
        });
        run(async {
            let mut receiver = mailbox.receiver().expect("the first");
            let mut next = [0; 2];
            while next != [EACH; 2] {
                receiver.wait().await.expect("woken");
                while let Some((who, i)) = receiver.pop() {
                    let expected: &mut u32 = &mut next[who];
                    assert_eq!(i, *expected);
                    *expected += 1;
                }
            }
        });
        for sender in senders {
            sender.join().expect("done");
        }
    }

    #[test]
    fn a_full_command_queue_gives_the_command_back_and_leaves_room_for_connections() {
        let mailbox = Mailbox::with_capacity(2, 2).expect("made");
        mailbox.try_send(1).expect("room");
        mailbox.try_send(2).expect("room");
        assert_eq!(mailbox.try_send(3), Err(3));
        mailbox.hand_off(10);
        mailbox.hand_off(11);
        run(async {
            let mut receiver = mailbox.receiver().expect("the first");
            assert!(mailbox.receiver().is_err());
            receiver.wait().await.expect("not empty");
            let all: Vec<_> = std::iter::from_fn(|| receiver.pop()).collect();
            assert_eq!(all, [10, 11, 1, 2]);
        });
    }

    #[test]
    #[should_panic(expected = "more connections are moving than were admitted")]
    fn a_connection_beyond_the_admitted_is_a_fault_of_ours() {
        let mailbox = Mailbox::new(1).expect("made");
        mailbox.hand_off(());
        mailbox.hand_off(());
    }
}
