//! What a service manager is told (sd_notify(3)). Without one, or where it does not answer, nothing
//! is lost: a service that serves is worth more than one that was reported.

use sd_notify::NotifyState;

/// Connections are accepted.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The planned end has begun and takes this many seconds at the most, what the service manager
/// waits by itself included.
pub fn stopping(within: std::time::Duration) {
    let micros = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros)]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
