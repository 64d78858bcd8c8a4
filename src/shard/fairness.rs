//! A yield that lets everybody else run.
//!
//! monoio looks at timers and completions only when it enters the kernel, which it does when no
//! task is ready. A task that merely queues itself again keeps it from that. So the yield waits
//! for the ring: it polls a socket that always has a byte to read.

use std::io::{self, Write};

use monoio::net::UnixStream;

/// A shard's one always-readable socket.
#[derive(Debug)]
pub struct Yielder {
    readable: UnixStream,
    /// Kept open: the socket is readable because of the byte, not because its peer is gone.
    _peer: std::os::unix::net::UnixStream,
}

impl Yielder {
    /// Made inside the shard's runtime. Errors: no descriptor is left.
    pub fn new() -> io::Result<Self> {
        let (readable, mut peer) = std::os::unix::net::UnixStream::pair()?;
        peer.write_all(&[0])?;
        Ok(Self { readable: UnixStream::from_std(readable)?, _peer: peer })
    }

    /// Lets timers, completions and all ready tasks run before it returns. Any number of tasks may
    /// yield at one time.
    pub async fn yield_now(&self) {
        if let Err(error) = self.readable.readable(false).await {
            // Nobody was let through this time; the caller comes back after its next slice.
            tracing::warn!(%error, "a yield through the ring failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::shard::{run, task};

    #[test]
    fn a_timer_and_other_busy_tasks_run_while_a_busy_task_yields() {
        run(async {
            let yielder = Rc::new(Yielder::new().expect("made"));
            let stop = Rc::new(Cell::new(false));
            let turns = Rc::new([Cell::new(0_u32), Cell::new(0_u32)]);
            for who in [0, 1] {
                let (yielder, stop, turns) = (yielder.clone(), stop.clone(), turns.clone());
                let busy = async move {
                    let end = Instant::now() + Duration::from_secs(5);
                    while !stop.get() && Instant::now() < end {
                        turns[who].set(turns[who].get() + 1);
                        yielder.yield_now().await;
                    }
                };
                task::spawn("busy", busy, || unreachable!("it does not panic"));
            }
            let began = Instant::now();
            monoio::time::sleep(Duration::from_millis(5)).await;
            stop.set(true);
            assert!(began.elapsed() < Duration::from_secs(2), "the timer was starved");
            assert!(turns.iter().all(|turns| turns.get() > 1));
        });
    }
}
