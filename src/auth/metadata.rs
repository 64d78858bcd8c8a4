//! OAuth 2.0 Protected Resource Metadata (RFC 9728): who gives tokens for this server.

use serde_json::json;

use super::jwt::Rules;

/// Where the document is; that of a path has the path behind it (section 3.1).
pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The document, and where it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The URL that challenges name.
    pub url: String,
    /// The document, JSON.
    pub document: String,
}

impl Metadata {
    /// Of the resource at `path` below `base`, which is the public URL before every path; tokens
    /// are given by `issuers`.
    pub fn new(base: &str, path: &str, issuers: &[String], rules: Option<&Rules>) -> Self {
        let base = base.trim_end_matches('/');
        let scopes = rules.map_or(&[][..], |rules| &rules.scopes);
        let mut document = json!({
            "resource": format!("{base}{path}"),
            "authorization_servers": issuers,
            "bearer_methods_supported": ["header"],
        });
        if !scopes.is_empty() {
            document["scopes_supported"] = json!(scopes);
        }
        Self { url: format!("{base}{WELL_KNOWN}{path}"), document: document.to_string() }
    }

    /// Whether the document of the resource at `path` is asked for at `asked`.
    pub fn is_at(asked: &str, path: &str) -> bool {
        asked.strip_prefix(WELL_KNOWN).is_some_and(|rest| rest.is_empty() || rest == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_stands_where_the_challenge_says() {
        let issuers = ["https://id.example".to_owned()];
        let made = Metadata::new("https://mcp.example/", "/mcp", &issuers, None);
        assert_eq!(made.url, "https://mcp.example/.well-known/oauth-protected-resource/mcp");
        assert!(made.document.contains(r#""resource":"https://mcp.example/mcp""#));
        assert!(Metadata::is_at("/.well-known/oauth-protected-resource/mcp", "/mcp"));
        assert!(Metadata::is_at("/.well-known/oauth-protected-resource", "/mcp"));
        for other in ["/.well-known/oauth-protected-resource/", "/mcp", "/.well-known/x"] {
            assert!(!Metadata::is_at(other, "/mcp"), "{other}");
        }
    }
}
