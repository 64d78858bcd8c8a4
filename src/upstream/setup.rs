//! What sets a restarted child up like the one before.

use crate::mcp::json;
use crate::mcp::jsonrpc::{self, Envelope, Message};
use crate::session::{Remembered, Session};

/// How the ids of the requests after `initialize` begin; nobody waits for their answers.
pub(super) const STEP_ID: &str = "\"gapless:setup:";
/// Subscriptions kept for one session.
const SUBSCRIPTIONS_MAX: usize = 1024;

/// The session's own parameters, as the first child got them.
#[derive(Default)]
pub(super) struct Setup {
    initialize: Option<Box<str>>,
    version: Box<str>,
    capabilities: Box<str>,
    level: Option<Box<str>>,
    subscriptions: Vec<Box<str>>,
}

impl Setup {
    /// The set-up of a session that outlived its process.
    pub(super) fn restored(remembered: &Remembered) -> Self {
        let (version, capabilities) = identity(&remembered.result);
        let mut setup = Self {
            initialize: Some(remembered.initialize.as_str().into()),
            version: version.into(),
            capabilities: capabilities.into(),
            ..Self::default()
        };
        for (method, params) in &remembered.requests {
            setup.note(method, Some(params));
        }
        setup
    }

    /// What a restart has to know; none before the first child has answered.
    pub(super) fn remember(&self) -> Option<Remembered> {
        let level = self.level.iter().map(|params| ("logging/setLevel", params));
        let (version, capabilities) = (&self.version, &self.capabilities);
        let capabilities = if capabilities.is_empty() { "null" } else { capabilities };
        Some(Remembered {
            initialize: self.initialize.as_deref()?.to_owned(),
            result: format!(r#"{{"protocolVersion":{version},"capabilities":{capabilities}}}"#),
            requests: level
                .chain(self.subscriptions.iter().map(|params| ("resources/subscribe", params)))
                .map(|(method, params)| (method.to_owned(), params.to_string()))
                .collect(),
        })
    }

    /// Keeps the parameters of the `initialize` that goes out in `line`.
    pub(super) fn keep_initialize(&mut self, line: &[u8]) {
        if let Ok(Message::Single(message)) = jsonrpc::parse(line) {
            self.initialize = message.params.map(Into::into);
        }
    }

    /// The first child has answered: the session is initialized, unless the answer is an error or
    /// names no revision.
    pub(super) fn accept_initialize(
        &mut self,
        session: &mut Session,
        message: &Envelope<'_>,
    ) -> bool {
        let Some((_, name)) = jsonrpc::result_protocol_version(message) else { return false };
        let (version, capabilities) = identity_of(message);
        self.version = version.into();
        self.capabilities = capabilities.into();
        session.set_initialized(&name);
        true
    }

    /// Whether a restarted child answered like the first one.
    pub(super) fn is_alike(&self, message: &Envelope<'_>) -> bool {
        let (version, capabilities) = identity_of(message);
        !message.is_error && *version == *self.version && *capabilities == *self.capabilities
    }

    /// Notes a request of the client that a restarted child has to be told again.
    pub(super) fn note(&mut self, method: &str, params: Option<&str>) {
        let Some(params) = params else { return };
        match method {
            "logging/setLevel" => self.level = Some(params.into()),
            "resources/subscribe" if self.subscriptions.len() < SUBSCRIPTIONS_MAX => {
                self.forget(params);
                self.subscriptions.push(params.into());
            }
            "resources/unsubscribe" => self.forget(params),
            _ => {}
        }
    }

    /// The first line for a restarted child.
    pub(super) fn initialize_line(&self, id: &str) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        jsonrpc::request(&mut line, id, "initialize", Some(self.initialize.as_deref()?));
        line.push(b'\n');
        Some(line)
    }

    /// The lines once it has answered. Nobody waits for the answers to them.
    pub(super) fn lines_after_initialize(&self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut line = Vec::new();
        jsonrpc::notification(&mut line, "notifications/initialized", None);
        lines.push(line);
        let level = self.level.iter().map(|params| ("logging/setLevel", params));
        let subscriptions = self.subscriptions.iter().map(|params| ("resources/subscribe", params));
        for (number, (method, params)) in level.chain(subscriptions).enumerate() {
            let mut line = Vec::new();
            let id = format!("{STEP_ID}{number}\"");
            jsonrpc::request(&mut line, &id, method, Some(params));
            lines.push(line);
        }
        for line in &mut lines {
            line.push(b'\n');
        }
        lines
    }

    fn forget(&mut self, params: &str) {
        let uri = uri(params);
        self.subscriptions.retain(|kept| self::uri(kept) != uri);
    }
}

fn uri(params: &str) -> Option<String> {
    let raw = json::member(params, "uri").ok().flatten()?;
    Some(json::decode(raw).into_owned())
}

fn identity_of<'a>(message: &Envelope<'a>) -> (&'a str, &'a str) {
    identity(message.outcome.unwrap_or_default())
}

/// Revision and capabilities of an `initialize` result, raw.
fn identity(result: &str) -> (&str, &str) {
    let member = |name| json::member(result, name).ok().flatten().unwrap_or_default();
    (member("protocolVersion"), member("capabilities"))
}
