//! The admin listener: where, and who may use it.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::check::Check;
use super::values::{LISTEN_ALLOWED, listen};

/// Where the admin listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Its address.
    pub listen: SocketAddr,
    /// The file that holds its token; none only on loopback.
    pub token_file: Option<PathBuf>,
}

impl Check<'_> {
    /// None where there is no such listener.
    pub(super) fn admin(&mut self) -> Option<AdminConfig> {
        let listen =
            self.one("admin-listen", None, LISTEN_ALLOWED, |typed| listen(typed).map(Some));
        let token_file = self.one("admin-token-file", None, "a file's path", |typed| {
            (!typed.is_empty()).then(|| Some(PathBuf::from(typed)))
        });
        let Some(listen) = listen else {
            self.needless(&["admin-token-file"], "an admin listener: --admin-listen ADDR:PORT");
            return None;
        };
        if !listen.ip().is_loopback() && token_file.is_none() {
            self.wrong.push(format!(
                "--admin-listen {listen} can be reached from other machines: it needs an \
                 --admin-token-file FILE"
            ));
        }
        Some(AdminConfig { listen, token_file })
    }
}
