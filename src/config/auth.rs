//! What requests have to bring: the settings under "Authentication".

use std::path::PathBuf;

use super::check::Check;

/// What requests have to bring. It counts for the whole process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthConfig {
    /// The file of API keys (`auth::keys`).
    pub api_keys: Option<PathBuf>,
}

impl AuthConfig {
    /// Whether nobody is asked who is calling.
    pub fn is_open(&self) -> bool {
        self.api_keys.is_none()
    }
}

/// Reads the words.
pub(super) fn check(check: &mut Check<'_>) -> AuthConfig {
    AuthConfig { api_keys: check.one("api-keys", None, FILE_ALLOWED, file) }
}

const FILE_ALLOWED: &str = "a file's path";

fn file(typed: &str) -> Option<Option<PathBuf>> {
    (!typed.is_empty() && !typed.contains('\0')).then(|| Some(PathBuf::from(typed)))
}
