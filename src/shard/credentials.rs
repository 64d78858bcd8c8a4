//! What requests have to bring, read once at the start and given to every shard.

use std::path::Path;
use std::sync::Arc;

use tracing::info;

use crate::auth::gate::{Gate, Tokens};
use crate::auth::jwks::Published;
use crate::auth::jwt::Rules;
use crate::auth::keys::{self, KeyLine};
use crate::auth::metadata::Metadata;
use crate::config::{AuthConfig, ServerConfig};

use super::jwks;

/// What all shards' gates are made of.
#[derive(Default)]
pub struct Credentials {
    keys: Option<Vec<KeyLine>>,
    tokens: Option<(Arc<Rules>, Arc<Published>)>,
    /// Of each server, by its place in the configuration; empty where no issuer is named.
    metadata: Vec<Metadata>,
}

impl Credentials {
    /// Reads what the configuration names; each server is a resource.
    ///
    /// # Errors
    /// One text for the operator: everything that is wrong, one line each.
    pub fn load(config: &AuthConfig, servers: &[ServerConfig]) -> Result<Self, String> {
        let keys = config.api_keys.as_deref().map(api_keys).transpose()?;
        let tokens = match &config.tokens {
            Some(tokens) => {
                Some((Arc::new(tokens.rules.clone()), jwks::start(tokens.source.clone())?))
            }
            None => None,
        };
        let rules = tokens.as_ref().map(|(rules, _)| &**rules);
        let metadata = config.metadata.iter().flat_map(|metadata| {
            let of = |server: &ServerConfig| {
                Metadata::new(&metadata.base, &server.path, &metadata.issuers, rules)
            };
            servers.iter().map(of)
        });
        let metadata = metadata.collect();
        Ok(Self { keys, tokens, metadata })
    }

    /// A gate for one shard.
    pub fn gate(&self) -> Gate {
        let tokens = self.tokens.as_ref();
        let tokens =
            tokens.map(|(rules, published)| Tokens::new(Arc::clone(rules), Arc::clone(published)));
        let metadata = self.metadata.iter().map(|metadata| metadata.url.as_str().into()).collect();
        Gate::new(self.keys.as_deref(), tokens, metadata)
    }

    /// The document that says who gives tokens for this server, where there is one.
    pub fn metadata(&self, server: u16) -> Option<&Metadata> {
        self.metadata.get(usize::from(server))
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
