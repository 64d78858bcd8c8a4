//! Resources: three listed ones, and a template (conformance fixtures).
//!
//! Invariant: only what is listed can be subscribed to, so subscriptions take constant space.

use std::borrow::Cow;

use serde::Deserialize;

use super::fixtures::red_pixel_png;
use super::{Level, Refusal, parse};
use crate::mcp::jsonrpc::push_string;

/// The resource that changes: with the level of `logging/setLevel`.
pub(super) const WATCHED: &str = "test://watched-resource";

/// Result of `resources/list`, one page.
pub(super) const LIST: &str = concat!(
    r#"{"resources":["#,
    r#"{"uri":"test://static-text","name":"static-text","#,
    r#""description":"A text","mimeType":"text/plain"},"#,
    r#"{"uri":"test://static-binary","name":"static-binary","#,
    r#""description":"An image","mimeType":"image/png"},"#,
    r#"{"uri":"test://watched-resource","name":"watched-resource","#,
    r#""description":"The minimum level of log messages, which logging/setLevel changes","#,
    r#""mimeType":"text/plain"}]}"#
);

/// Result of `resources/templates/list`, one page.
pub(super) const TEMPLATES: &str = concat!(
    r#"{"resourceTemplates":[{"uriTemplate":"test://template/{id}/data","name":"template","#,
    r#""description":"Data about an id","mimeType":"application/json"}]}"#
);

const STATIC_TEXT: &str = concat!(
    r#"{"contents":[{"uri":"test://static-text","mimeType":"text/plain","#,
    r#""text":"This is the content of the static text resource."}]}"#
);

const STATIC_BINARY: &str = concat!(
    r#"{"contents":[{"uri":"test://static-binary","mimeType":"image/png","blob":""#,
    red_pixel_png!(),
    r#""}]}"#
);

/// Which of the listed resources the client wants to hear about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Subscriptions {
    static_text: bool,
    static_binary: bool,
    watched: bool,
}

#[derive(Deserialize)]
struct UriParams<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

impl Subscriptions {
    /// `resources/subscribe` (`wanted`) and `resources/unsubscribe`.
    pub(super) fn set(&mut self, params: Option<&str>, wanted: bool) -> Result<(), Refusal> {
        let params: UriParams = parse(params)?;
        let subscription = match params.uri.as_ref() {
            "test://static-text" => &mut self.static_text,
            "test://static-binary" => &mut self.static_binary,
            WATCHED => &mut self.watched,
            _ => return Err(Refusal::resource_not_found(&params.uri)),
        };
        *subscription = wanted;
        Ok(())
    }

    /// What is subscribed to.
    pub(super) fn uris(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.static_text, "test://static-text"),
            (self.static_binary, "test://static-binary"),
            (self.watched, WATCHED),
        ];
        all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, uri)| uri)
    }

    /// Whether [`WATCHED`] is subscribed to.
    pub(super) fn watched(&self) -> bool {
        self.watched
    }
}

/// Writes the result of `resources/read`.
pub(super) fn read(params: Option<&str>, level: Level, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let params: UriParams = parse(params)?;
    match params.uri.as_ref() {
        "test://static-text" => out.extend_from_slice(STATIC_TEXT.as_bytes()),
        "test://static-binary" => out.extend_from_slice(STATIC_BINARY.as_bytes()),
        WATCHED => {
            let text = format!("Log messages are sent from level {} on.", level.name());
            push_contents(out, WATCHED, "text/plain", &text);
        }
        uri => {
            let id = template_id(uri).ok_or_else(|| Refusal::resource_not_found(uri))?;
            let mut data = br#"{"id":"#.to_vec();
            push_string(&mut data, id);
            data.extend_from_slice(br#","templateTest":true,"data":"#);
            push_string(&mut data, &format!("Data for ID: {id}"));
            data.push(b'}');
            push_contents(out, uri, "application/json", &String::from_utf8_lossy(&data));
        }
    }
    Ok(())
}

/// The `{id}` of `test://template/{id}/data`: one non-empty path segment (RFC 6570 section 3.2.2).
fn template_id(uri: &str) -> Option<&str> {
    let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn push_contents(out: &mut Vec<u8>, uri: &str, mime_type: &str, text: &str) {
    out.extend_from_slice(br#"{"contents":[{"uri":"#);
    push_string(out, uri);
    out.extend_from_slice(br#","mimeType":"#);
    push_string(out, mime_type);
    out.extend_from_slice(br#","text":"#);
    push_string(out, text);
    out.extend_from_slice(b"}]}");
}
