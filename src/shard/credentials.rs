//! What requests have to bring, read once at the start and given to every shard.

use std::path::Path;

use tracing::info;

use crate::auth::gate::Gate;
use crate::auth::keys::{self, KeyLine};
use crate::config::AuthConfig;

/// What all shards' gates are made of.
#[derive(Debug, Default)]
pub struct Credentials {
    keys: Option<Vec<KeyLine>>,
}

impl Credentials {
    /// Reads what the configuration names.
    ///
    /// # Errors
    /// One text for the operator: everything that is wrong, one line each.
    pub fn load(config: &AuthConfig) -> Result<Self, String> {
        let keys = config.api_keys.as_deref().map(api_keys).transpose()?;
        Ok(Self { keys })
    }

    /// A gate for one shard.
    pub fn gate(&self) -> Gate {
        Gate::new(self.keys.as_deref())
    }
}

fn api_keys(path: &Path) -> Result<Vec<KeyLine>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let lines = keys::parse(&text).map_err(|wrong| {
        let wrong: Vec<_> = wrong.iter().map(|line| format!("{shown}: {line}")).collect();
        wrong.join("\n")
    })?;
    info!(file = %shown, keys = lines.len(), "API keys are asked for");
    Ok(lines)
}
