//! Tools that ask the client something: sampling and elicitation (conformance fixtures).
//!
//! Invariant: a request goes out only when the client declared the capability for it (MCP
//! 2025-11-25, lifecycle, capability negotiation).

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::mcp::revision;

use super::content::{push_failed_result, push_text_result};
use super::{Refusal, parse_arguments, string_argument};

/// What the client can be asked for, from its `initialize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientOffers {
    pub(super) sampling: bool,
    pub(super) elicitation: bool,
}

impl ClientOffers {
    /// Params of an `initialize` that offers this.
    pub(super) fn initialize_params(self) -> String {
        let sampling = self.sampling.then_some(r#""sampling":{}"#);
        let elicitation = self.elicitation.then_some(r#""elicitation":{}"#);
        let capabilities: Vec<&str> = sampling.into_iter().chain(elicitation).collect();
        let (version, capabilities) = (revision::NEWEST.as_str(), capabilities.join(","));
        format!(r#"{{"protocolVersion":"{version}","capabilities":{{{capabilities}}}}}"#)
    }
}

/// `ClientCapabilities`, as far as it matters here.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ClientCapabilities {
    sampling: Option<IgnoredAny>,
    elicitation: Option<ElicitationModes>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ElicitationModes {
    form: Option<IgnoredAny>,
    url: Option<IgnoredAny>,
}

impl ClientCapabilities {
    /// An elicitation capability that names no mode means forms (MCP 2025-11-25, elicitation).
    pub(super) fn offers(&self) -> ClientOffers {
        ClientOffers {
            sampling: self.sampling.is_some(),
            elicitation: self
                .elicitation
                .as_ref()
                .is_some_and(|modes| modes.form.is_some() || modes.url.is_none()),
        }
    }
}

/// What a tool asks the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// `test_sampling`: complete this prompt.
    Sampling,
    /// `test_elicitation`: a name and an address.
    Elicitation,
    /// `test_elicitation_sep1034_defaults`: a form with a default for each primitive type.
    Defaults,
    /// `test_elicitation_sep1330_enums`: a form with each kind of choice.
    Enums,
}

/// A client's answer to `elicitation/create`.
#[derive(Deserialize)]
struct ElicitResult<'a> {
    #[serde(borrow)]
    action: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// A client's answer to `sampling/createMessage`.
#[derive(Deserialize)]
struct CreateMessageResult<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

/// A content block of type text.
#[derive(Deserialize)]
struct TextBlock<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// A JSON-RPC error object.
#[derive(Deserialize)]
struct ErrorObject<'a> {
    #[serde(borrow)]
    message: Cow<'a, str>,
}

impl Question {
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Sampling => "sampling/createMessage",
            Self::Elicitation | Self::Defaults | Self::Enums => "elicitation/create",
        }
    }

    /// The capability that the client must have declared.
    pub(super) fn capability(self) -> &'static str {
        match self {
            Self::Sampling => "sampling",
            Self::Elicitation | Self::Defaults | Self::Enums => "elicitation",
        }
    }

    /// Whether the client can be asked this.
    pub(super) fn is_offered(self, offers: ClientOffers) -> bool {
        match self {
            Self::Sampling => offers.sampling,
            Self::Elicitation | Self::Defaults | Self::Enums => offers.elicitation,
        }
    }

    /// Writes the params of the request to the client.
    pub(super) fn write_params(
        self,
        arguments: Option<&RawValue>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        match self {
            Self::Sampling => {
                let arguments: SamplingArguments = parse_arguments(arguments)?;
                let prompt = string_argument(arguments.prompt, "prompt")?;
                out.extend_from_slice(
                    br#"{"messages":[{"role":"user","content":{"type":"text","text":"#,
                );
                out.extend_from_slice(prompt.as_bytes());
                out.extend_from_slice(br#"}}],"maxTokens":100}"#);
            }
            Self::Elicitation => {
                let arguments: ElicitationArguments = parse_arguments(arguments)?;
                let message = string_argument(arguments.message, "message")?;
                push_form(out, message, CONTACT_FORM);
            }
            Self::Defaults => {
                push_form(out, r#""Please check the prefilled values""#, DEFAULTS_FORM)
            }
            Self::Enums => push_form(out, r#""Please choose""#, ENUMS_FORM),
        }
        Ok(())
    }

    /// Writes the tool's result from the client's answer: its raw result, or its error object.
    pub(super) fn write_result(self, answer: Result<&str, &str>, out: &mut Vec<u8>) {
        let result = match answer {
            Ok(result) => result,
            Err(error) => {
                let reason = serde_json::from_str::<ErrorObject>(error);
                let reason = reason.as_ref().map_or(error, |error| error.message.as_ref());
                let text = format!("The client refused {}: {reason}", self.method());
                return push_failed_result(out, &text);
            }
        };
        let text = match self {
            Self::Sampling => sampling_text(result),
            Self::Elicitation => elicitation_text("User response", result),
            Self::Defaults | Self::Enums => elicitation_text("Elicitation completed", result),
        };
        match text {
            Ok(text) => push_text_result(out, &text),
            Err(error) => {
                let text = format!("The client's answer to {} is wrong: {error}", self.method());
                push_failed_result(out, &text);
            }
        }
    }
}

/// The content may be one block or, since 2025-11-25, an array of them; what is not one text is
/// shown as it is.
fn sampling_text(result: &str) -> serde_json::Result<String> {
    let result: CreateMessageResult = serde_json::from_str(result)?;
    let content = result.content.get();
    let block = serde_json::from_str::<TextBlock>(content);
    let text = block.as_ref().map_or(content, |block| block.text.as_ref());
    Ok(format!("LLM response: {text}"))
}

fn elicitation_text(prefix: &str, result: &str) -> serde_json::Result<String> {
    let result: ElicitResult = serde_json::from_str(result)?;
    let content = result.content.map_or("{}", RawValue::get);
    Ok(format!("{prefix}: action={}, content={content}", result.action))
}

/// `message` is a JSON string already.
fn push_form(out: &mut Vec<u8>, message: &str, schema: &str) {
    out.extend_from_slice(br#"{"message":"#);
    out.extend_from_slice(message.as_bytes());
    out.extend_from_slice(br#","requestedSchema":"#);
    out.extend_from_slice(schema.as_bytes());
    out.push(b'}');
}

#[derive(Default, Deserialize)]
struct SamplingArguments<'a> {
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct ElicitationArguments<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

const CONTACT_FORM: &str = concat!(
    r#"{"type":"object","properties":{"#,
    r#""username":{"type":"string","description":"User's response"},"#,
    r#""email":{"type":"string","description":"User's email address"}"#,
    r#"},"required":["username","email"]}"#
);

/// A default for each primitive type (SEP-1034).
const DEFAULTS_FORM: &str = concat!(
    r#"{"type":"object","properties":{"#,
    r#""name":{"type":"string","description":"Name","default":"John Doe"},"#,
    r#""age":{"type":"integer","description":"Age in years","default":30},"#,
    r#""score":{"type":"number","description":"Score","default":95.5},"#,
    r#""status":{"type":"string","description":"Status","#,
    r#""enum":["active","inactive","pending"],"default":"active"},"#,
    r#""verified":{"type":"boolean","description":"Whether verified","default":true}"#,
    r#"},"required":[]}"#
);

/// Each kind of choice (SEP-1330).
const ENUMS_FORM: &str = concat!(
    r#"{"type":"object","properties":{"#,
    r#""untitledSingle":{"type":"string","enum":["option1","option2","option3"]},"#,
    r#""titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},"#,
    r#"{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},"#,
    r#""legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"#,
    r#""enumNames":["Option One","Option Two","Option Three"]},"#,
    r#""untitledMulti":{"type":"array","items":{"type":"string","#,
    r#""enum":["option1","option2","option3"]}},"#,
    r#""titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},"#,
    r#"{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}"#,
    r#"},"required":[]}"#
);
