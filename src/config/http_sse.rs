//! The paths of the HTTP+SSE transport (MCP 2024-11-05), and what its clients are told of them.

/// Where the HTTP+SSE transport is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSsePaths {
    /// Path of the stream (GET).
    pub stream: String,
    /// Path of the messages (POST).
    pub messages: String,
    /// What stands before the messages' path in the `endpoint` event: `scheme://host[:port][/path]`
    /// as clients reach this server. None: a relative reference.
    pub public_base: Option<String>,
}

impl HttpSsePaths {
    /// The URI reference of the `endpoint` event for a session. Without a public base it is
    /// relative to the stream's path (RFC 3986, section 4.2), so that it stays right behind a proxy
    /// that adds a prefix.
    pub fn endpoint(&self, session: &[u8]) -> String {
        let target = match &self.public_base {
            Some(base) => format!("{}{}", base.trim_end_matches('/'), self.messages),
            None => relative(&self.stream, &self.messages),
        };
        format!("{target}?sessionId={}", session.escape_ascii())
    }
}

/// `to` as seen from `from`; both are absolute paths.
fn relative(from: &str, to: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let from: Vec<&str> = folder.split('/').skip(1).collect();
    let to: Vec<&str> = to.split('/').skip(1).collect();
    let folders = to.len().saturating_sub(1);
    let same = from.iter().zip(&to[..folders]).take_while(|(a, b)| a == b).count();
    let ups = std::iter::repeat_n("..", from.len() - same);
    let parts: Vec<&str> = ups.chain(to[same..].iter().copied()).collect();
    let reference = parts.join("/");
    // A colon in the first segment would end a scheme, an empty one begin a path or a host.
    let first = parts.first().copied().unwrap_or_default();
    if first.is_empty() || first.contains(':') { format!("./{reference}") } else { reference }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_reference_survives_a_prefix() {
        assert_eq!(relative("/sse", "/messages"), "messages");
        assert_eq!(relative("/a/sse", "/a/messages"), "messages");
        assert_eq!(relative("/a/b/sse", "/a/messages"), "../messages");
        assert_eq!(relative("/a/sse", "/b/c"), "../b/c");
        assert_eq!(relative("/sse", "/b/c"), "b/c");
    }

    /// Story: `/v1:messages` was told as `v1:messages`, whose scheme is `v1`, and `//messages` as
    /// `/messages`, which loses a prefix.
    #[test]
    fn a_relative_reference_is_no_scheme_no_host_and_no_absolute_path() {
        assert_eq!(relative("/sse", "/v1:messages"), "./v1:messages");
        assert_eq!(relative("/sse", "//messages"), ".//messages");
        assert_eq!(relative("/a/sse", "/a//b"), ".//b");
        assert_eq!(relative("/a/sse", "/b:c"), "../b:c");
        assert_eq!(relative("//sse", "//messages"), "messages");
        assert_eq!(relative("/sse", "/"), "./");
    }

    #[test]
    fn a_public_base_is_named_as_it_is() {
        let mut paths = HttpSsePaths {
            stream: "/sse".into(),
            messages: "/messages".into(),
            public_base: Some("https://mcp.example.org/pre/".into()),
        };
        let uri = "https://mcp.example.org/pre/messages?sessionId=x";
        assert_eq!(paths.endpoint(b"x"), uri);
        paths.public_base = None;
        assert_eq!(paths.endpoint(b"x"), "messages?sessionId=x");
    }
}
