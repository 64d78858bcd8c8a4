//! New connections of one shard.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use monoio::net::TcpListener;
use tracing::warn;

use crate::limits::NOTSENT_LOWAT_BYTES;
use crate::shard::Shard;
use crate::shard::handoff::{Arrived, Permit};
use crate::stream::ConnOut;
use crate::sys::borrow::OwnsFd;
use crate::sys::{accept, tcp};

use super::conn;

/// Connections accepted in one go before others get their turn.
const BURST: usize = 64;
/// Pause after an error such as "too many open files": the listener stays readable meanwhile.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the shard drains; then the listener is closed.
pub async fn accept(shard: Rc<Shard>, listener: TcpListener) {
    loop {
        let readable = pin!(listener.readable(false));
        match shard.stop_accepting.or(readable).await {
            None => return,
            Some(Err(error)) => {
                if shard.may_log() {
                    warn!(%error, "the listener cannot be waited for");
                }
                monoio::time::sleep(ERROR_PAUSE).await;
            }
            Some(Ok(())) => {}
        }
        for _ in 0..BURST {
            match accept::accept4(listener.borrow_fd()) {
                Ok(Some((socket, _))) => admit(&shard, socket),
                Ok(None) => break,
                Err(error) => {
                    if shard.may_log() {
                        warn!(%error, "a connection could not be accepted");
                    }
                    monoio::time::sleep(ERROR_PAUSE).await;
                    break;
                }
            }
        }
    }
}

fn admit(shard: &Rc<Shard>, socket: OwnedFd) {
    let Some(permit) = Permit::new(&shard.process) else {
        if shard.may_log() {
            let limit = shard.limits.connections;
            warn!(limit, "a connection was refused: the process has as many as it may");
        }
        return;
    };
    let options = tcp::set_nodelay(&socket)
        .and_then(|()| tcp::set_notsent_lowat(&socket, NOTSENT_LOWAT_BYTES))
        .and_then(|()| tcp::set_user_timeout(&socket, shard.limits.peer_timeout));
    if options.is_err() {
        return;
    }
    shard.counters.connections_opened.increment();
    let out = ConnOut::default();
    conn::start(shard, Arrived { socket, input: Vec::new(), out, permit });
}
