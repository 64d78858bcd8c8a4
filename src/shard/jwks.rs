//! The thread that fetches an issuer's keys, so that no shard ever waits for a network.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use tracing::{info, warn};

use crate::auth::jwks::{KeySet, Published};
use crate::config::JwksSource;
use crate::limits::{JWKS_BYTES_MAX, JWKS_INTERVAL, JWKS_REST, JWKS_TIME_MAX};

/// Fetches the keys for the first time, and starts the thread that renews them: from time to time,
/// and when a token names a key that is not there. The last good keys stay where that fails.
///
/// # Errors
/// One sentence. A file has to be good at the start; a URL may become so later.
pub fn start(source: JwksSource) -> Result<Arc<Published>, String> {
    let first = match (fetch(&source), &source) {
        (Ok(keys), _) => keys,
        (Err(error), JwksSource::File(path)) => {
            return Err(format!("{}: {error}", path.display()));
        }
        (Err(error), JwksSource::Url(url)) => {
            warn!(%url, error, "the keys of tokens could not be fetched: none is good until then");
            KeySet::default()
        }
    };
    info!(keys = first.0.len(), "tokens of an issuer are asked for");
    let (bell, rung) = mpsc::sync_channel(1);
    let published = Arc::new(Published::new(first, bell));
    let renewed = Arc::clone(&published);
    let thread = thread::Builder::new().name("jwks".to_owned());
    thread
        .spawn(move || renew(&source, &renewed, &rung))
        .map_err(|error| format!("the thread of the keys of tokens: {error}"))?;
    Ok(published)
}

fn renew(source: &JwksSource, published: &Published, rung: &Receiver<()>) {
    loop {
        match rung.recv_timeout(JWKS_INTERVAL) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let begun = Instant::now();
        let fetched = fetch(source);
        match &fetched {
            Ok(keys) => info!(keys = keys.0.len(), "the keys of tokens were fetched"),
            Err(error) => {
                warn!(error, "the keys of tokens could not be fetched: the last ones stay")
            }
        }
        published.handle_fetched(fetched.ok());
        thread::sleep(JWKS_REST.saturating_sub(begun.elapsed()));
        published.handle_rested();
    }
}

fn fetch(source: &JwksSource) -> Result<KeySet, String> {
    let document = match source {
        JwksSource::File(path) => read(path)?,
        JwksSource::Url(url) => get(url)?,
    };
    KeySet::parse(&document)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| error.to_string();
    let file = std::fs::File::open(path).map_err(told)?;
    let mut document = Vec::new();
    file.take(JWKS_BYTES_MAX + 1).read_to_end(&mut document).map_err(told)?;
    if document.len() as u64 > JWKS_BYTES_MAX {
        return Err(format!("more than {JWKS_BYTES_MAX} bytes"));
    }
    Ok(document)
}

/// Redirects are not followed: where they lead was not configured.
fn get(url: &str) -> Result<Vec<u8>, String> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(JWKS_TIME_MAX))
        .max_redirects(0)
        .user_agent(concat!("gapless/", env!("CARGO_PKG_VERSION")));
    let agent = config.build().new_agent();
    let told = |error: ureq::Error| error.to_string();
    let mut answer = agent.get(url).call().map_err(told)?;
    if answer.status() != 200 {
        return Err(format!("the answer is {}", answer.status()));
    }
    answer.body_mut().with_config().limit(JWKS_BYTES_MAX).read_to_vec().map_err(told)
}
