//! Content negotiation and MCP's own header fields, over raw field values.
//!
//! Values are bytes as they came. A field may come in several lines, which mean the same as one
//! line joined by commas (RFC 9110 section 5.3). None of these functions fails: what cannot be
//! understood in a list is ignored, and everything else shows in the answer.

/// The representations that a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// `application/json`.
    pub json: bool,
    /// `text/event-stream`.
    pub sse: bool,
}

/// Reads the lines of `Accept` (RFC 9110 section 12.5.1). Absent or without any element it accepts
/// everything. The most specific range that matches decides, by its weight being zero or not; of
/// equally specific ones any weight above zero suffices. Parameters of a range other than its
/// weight are ignored: both types have one form here. Two spellings that the RFC does not know but
/// old clients send are understood: `*` for `*/*` and weights like `.2`.
pub fn accept<'a>(values: impl Iterator<Item = &'a [u8]>) -> Accept {
    let mut any = false;
    let mut json = Preference::default();
    let mut sse = Preference::default();
    let mut values = values.peekable();
    // What most official clients send, word for word; it stands alone, or the rest is read below.
    if values.next_if(|value| *value == USUAL).is_some() {
        any = true;
        let both = [(&mut json, b"application/json".as_slice()), (&mut sse, b"text/event-stream")];
        for (preference, media_type) in both {
            preference.apply(media_type, media_type, true);
        }
    }
    for range in values.flat_map(|value| split(value, b',')) {
        any = true;
        let mut parts = split(range, b';');
        let Some(name) = parts.next() else { continue };
        let Some(acceptable) = is_acceptable(parts) else { continue };
        json.apply(name, b"application/json", acceptable);
        sse.apply(name, b"text/event-stream", acceptable);
    }
    if !any {
        return Accept { json: true, sse: true };
    }
    Accept { json: json.acceptable, sse: sse.acceptable }
}

/// The value of `Accept` that the official clients send with a POST.
const USUAL: &[u8] = b"application/json, text/event-stream";

/// What the ranges seen so far say about one media type.
#[derive(Default)]
struct Preference {
    /// 0: no range matched; 1: `*/*`; 2: `type/*`; 3: the type itself.
    specificity: u8,
    acceptable: bool,
}

impl Preference {
    fn apply(&mut self, range: &[u8], media_type: &[u8], acceptable: bool) {
        let of_its_type = || {
            let slash = media_type.iter().position(|&byte| byte == b'/')?;
            let (range, subtype) = range.split_at_checked(slash + 1)?;
            let type_and_slash = media_type.get(..=slash)?;
            Some(subtype == b"*" && range.eq_ignore_ascii_case(type_and_slash))
        };
        let specificity = if range.eq_ignore_ascii_case(media_type) {
            3
        } else if range == b"*/*" || range == b"*" {
            1
        } else if of_its_type() == Some(true) {
            2
        } else {
            return;
        };
        if specificity > self.specificity {
            *self = Self { specificity, acceptable };
        } else if specificity == self.specificity {
            self.acceptable |= acceptable;
        }
    }
}

/// Whether the weight among a range's parameters is above zero; `None` where it is no weight.
fn is_acceptable<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> Option<bool> {
    for parameter in parameters {
        let Some((name, weight)) = name_and_value(parameter) else { continue };
        if name.eq_ignore_ascii_case(b"q") {
            let number = weight.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
            let digits = weight.iter().any(u8::is_ascii_digit);
            let above_zero = weight.iter().any(|byte| matches!(byte, b'1'..=b'9'));
            return (number && digits).then_some(above_zero);
        }
    }
    Some(true)
}

/// Whether a `Content-Type` is JSON: `application/json`, in UTF-8 where it names a charset
/// (RFC 8259 sections 8.1 and 11). Other parameters are ignored, as the registration says.
pub fn is_json_content_type(value: &[u8]) -> bool {
    // Not by `split`, which leaves an empty type out and would take a parameter for the type.
    let name = value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    if !name.eq_ignore_ascii_case(b"application/json") {
        return false;
    }
    split(value, b';').skip(1).all(|parameter| match name_and_value(parameter) {
        Some((name, value)) if name.eq_ignore_ascii_case(b"charset") => {
            let bare = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
            let charset = bare.unwrap_or(value);
            charset.eq_ignore_ascii_case(b"utf-8") || charset.eq_ignore_ascii_case(b"utf8")
        }
        _ => true,
    })
}

fn name_and_value(parameter: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = parameter.iter().position(|&byte| byte == b'=')?;
    let (name, value) = parameter.split_at_checked(equals)?;
    Some((name.trim_ascii(), value.strip_prefix(b"=")?.trim_ascii()))
}

/// The elements of a list, trimmed, without empty ones; separators inside quoted strings
/// (RFC 9110 section 5.6.4) do not count.
fn split(list: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let mut escaped = false;
    let elements = list.split(move |&byte| {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            return false;
        }
        quoted = byte == b'"';
        byte == separator
    });
    elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// A field that has one value, as the lines of a request have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single<T> {
    /// Not there, or empty.
    Absent,
    /// One value, once or repeated: proxies double fields.
    One(T),
    /// Two different values, so that two readers could follow different ones.
    Conflicting,
}

/// The one value of a field's lines.
fn single<'a>(values: impl Iterator<Item = &'a [u8]>) -> Single<&'a [u8]> {
    let mut found = Single::Absent;
    for value in values.flat_map(|value| split(value, b',')) {
        match found {
            Single::Absent => found = Single::One(value),
            Single::One(first) if first == value => {}
            _ => return Single::Conflicting,
        }
    }
    found
}

/// Reads the lines of `MCP-Protocol-Version`. A value that is no UTF-8 shows as U+FFFD, which is
/// no revision.
pub fn protocol_version<'a>(values: impl Iterator<Item = &'a [u8]>) -> Single<&'a str> {
    match single(values) {
        Single::Absent => Single::Absent,
        Single::One(value) => Single::One(std::str::from_utf8(value).unwrap_or("\u{fffd}")),
        Single::Conflicting => Single::Conflicting,
    }
}

/// Reads the lines of `Mcp-Session-Id`.
pub fn session_id<'a>(values: impl Iterator<Item = &'a [u8]>) -> Single<&'a [u8]> {
    single(values)
}

/// Reads the lines of `Last-Event-ID`. An empty one is absent: a client without a cursor
/// (HTML, Server-sent events, 9.2.4).
pub fn last_event_id<'a>(values: impl Iterator<Item = &'a [u8]>) -> Single<&'a [u8]> {
    single(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<'a>(values: &'a [&'a str]) -> impl Iterator<Item = &'a [u8]> {
        values.iter().map(|value| value.as_bytes())
    }

    #[test]
    fn accept_is_matched_as_rfc_9110_has_it() {
        for (values, json, sse) in [
            (&[][..], true, true),
            (&[""], true, true),
            (&[" , "], true, true),
            (&["application/json, text/event-stream"], true, true),
            (&["text/event-stream", "application/json"], true, true),
            (&["application/json"], true, false),
            (&["text/event-stream"], false, true),
            (&["*/*"], true, true),
            (&["application/*, text/*"], true, true),
            (&["TEXT/*"], false, true),
            (&["APPLICATION/JSON;charset=utf-8, Text/Event-Stream;q=0.1"], true, true),
            (&["text/html"], false, false),
            (&["application/json;q=0, */*"], false, true),
            (&["*/*, application/json;q=0"], false, true),
            (&["*/*;q=0, application/json"], true, false),
            (&["text/*;q=0, */*;q=0.5"], true, false),
            (&["application/json; q=0.000, text/event-stream ; Q=0.001"], false, true),
            (&["application/json;q=0, application/json"], true, false),
            (&["application/json;q=high"], false, false),
            (&["text/html, image/gif, *; q=.2"], true, true),
            (&["application/json;a=\"x, text/event-stream\""], true, false),
            (&["application/json;a=\"\\\", text/event-stream\";q=0"], false, false),
            (&["application/jsonx, text/event-stream-x, application/json/x"], false, false),
            (&["application/json-seq", "text/plain"], false, false),
        ] {
            assert_eq!(accept(lines(values)), Accept { json, sse }, "{values:?}");
        }
        assert!(accept([&b"\xff\xfe/\x80;\xff"[..], b"*/*"].into_iter()).json);
    }

    #[test]
    fn json_content_types() {
        for value in [
            "application/json",
            " Application/JSON ",
            "application/json;charset=utf-8",
            "application/json; charset=\"UTF-8\" ",
            "application/json; charset=utf8;",
            "application/json; profile=\"a;charset=latin1\"",
        ] {
            assert!(is_json_content_type(value.as_bytes()), "{value}");
        }
        for value in [
            "",
            "text/json",
            "application/json-rpc",
            "application/jsonx",
            "application/vnd.api+json",
            "text/plain;application/json",
            ";application/json",
            "application/json;charset=latin1",
            "application/json;charset=utf-8;charset=utf-16",
            "application/json, text/plain",
            "application/x-www-form-urlencoded",
        ] {
            assert!(!is_json_content_type(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn doubled_fields_must_agree() {
        assert_eq!(session_id(lines(&[])), Single::Absent);
        assert_eq!(session_id(lines(&[" "])), Single::Absent);
        assert_eq!(session_id(lines(&["abc"])), Single::One(&b"abc"[..]));
        assert_eq!(session_id(lines(&["abc", "abc"])), Single::One(&b"abc"[..]));
        assert_eq!(session_id(lines(&["abc", "abd"])), Single::Conflicting);
        assert_eq!(session_id(lines(&["abc, abd", "abc"])), Single::Conflicting);
        assert_eq!(last_event_id(lines(&["", "a.1"])), Single::One(&b"a.1"[..]));
        assert_eq!(last_event_id(lines(&["a.1", "a.2"])), Single::Conflicting);
        let version = "2025-06-18";
        assert_eq!(protocol_version(lines(&["2025-06-18, 2025-06-18"])), Single::One(version));
        assert_eq!(protocol_version(lines(&[version, "2025-11-25"])), Single::Conflicting);
        assert_eq!(protocol_version([&b"\xff"[..]].into_iter()), Single::One("\u{fffd}"));
    }
}
