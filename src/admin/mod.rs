//! The admin listener: health, metrics, what is there, and the few things that can be done to it.
//!
//! It has threads of its own, blocking and few: a shard never serves it, only answers it through
//! its mailbox ([`ask`]), so that nobody who looks can slow a stream.
//!
//! Invariants: at most [`ADMIN_CONNECTIONS_MAX`] connections; a request is read and answered within
//! [`ADMIN_TIME_MAX`], but for the event stream; no answer has a session id or a cursor in it.

mod ask;
mod events;
mod http;
mod notify;
mod routes;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::warn;

use crate::auth::origin::OriginPolicy;
use crate::config::AdminConfig;
use crate::limits::{ADMIN_CONNECTIONS_MAX, ADMIN_TIME_MAX};
use crate::shard::Process;

/// Pause after a connection could not be accepted.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// What every connection has.
struct Admin {
    process: Arc<Process>,
    /// Whose `Host` is served: on loopback, this machine's names alone.
    hosts: OriginPolicy,
    /// The hash of the token; none where none is asked for. Hashes compare in constant time.
    token: Option<blake3::Hash>,
    /// Unix time of the start, seconds.
    started: u64,
    /// Log lines that were lost so far.
    lost_lines: Box<dyn Fn() -> u64 + Send + Sync>,
    open: AtomicUsize,
}

/// Starts the listener and returns where it listens.
///
/// # Errors
/// One sentence for the operator.
pub fn start(
    config: &AdminConfig,
    process: Arc<Process>,
    lost_lines: impl Fn() -> u64 + Send + Sync + 'static,
) -> Result<SocketAddr, String> {
    let fail = |error: io::Error| format!("cannot listen on {}: {error}", config.listen);
    let token = config.token_file.as_deref().map(read_token).transpose()?;
    let listener = TcpListener::bind(config.listen).map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    let hosts = OriginPolicy::new(&[address], &[], &[]).map_err(|wrong| wrong.join("; "))?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let admin = Arc::new(Admin {
        process,
        hosts,
        token,
        started,
        lost_lines: Box::new(lost_lines),
        open: AtomicUsize::new(0),
    });
    let accept = move || accept(&admin, &listener);
    let thread = thread::Builder::new().name("admin".into()).spawn(accept);
    thread.map_err(|error| format!("the admin listener's thread: {error}"))?;
    Ok(address)
}

fn read_token(path: &Path) -> Result<blake3::Hash, String> {
    let fail = |why: &str| format!("--admin-token-file {}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| fail(&error.to_string()))?;
    match text.trim() {
        "" => Err(fail("there is no token in it")),
        token => Ok(blake3::hash(token.as_bytes())),
    }
}

fn accept(admin: &Arc<Admin>, listener: &TcpListener) {
    loop {
        match listener.accept() {
            Ok((socket, _)) => serve(admin, socket),
            Err(error) => {
                warn!(%error, "an admin connection could not be accepted");
                thread::sleep(ERROR_PAUSE);
            }
        }
    }
}

/// One connection on a thread of its own; one too many is closed.
fn serve(admin: &Arc<Admin>, socket: TcpStream) {
    let place = Place::new(admin);
    let times = socket
        .set_read_timeout(Some(ADMIN_TIME_MAX))
        .and_then(|()| socket.set_write_timeout(Some(ADMIN_TIME_MAX)));
    let (Some(place), Ok(())) = (place, times) else { return };
    let connection = move || http::serve(&place.0, socket);
    if let Err(error) = thread::Builder::new().name("admin-conn".into()).spawn(connection) {
        warn!(%error, "an admin connection has no thread");
    }
}

/// One of the connections; gives its place back when dropped.
struct Place(Arc<Admin>);

impl Place {
    fn new(admin: &Arc<Admin>) -> Option<Self> {
        let place = Self(Arc::clone(admin));
        (admin.open.fetch_add(1, Ordering::Relaxed) < ADMIN_CONNECTIONS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
