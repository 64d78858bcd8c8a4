//! Prompts, and completion of their arguments (conformance fixtures).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::content::push_number;
use super::fixtures::red_pixel_png;
use super::{Refusal, parse, parse_arguments, string_argument};
use crate::mcp::jsonrpc::push_string;

/// Result of `prompts/list`, one page.
pub(super) const LIST: &str = concat!(
    r#"{"prompts":["#,
    r#"{"name":"test_simple_prompt","description":"A prompt without arguments"},"#,
    r#"{"name":"test_prompt_with_arguments","description":"A prompt with two arguments","#,
    r#""arguments":[{"name":"arg1","description":"First test argument","required":true},"#,
    r#"{"name":"arg2","description":"Second test argument","required":true}]},"#,
    r#"{"name":"test_prompt_with_embedded_resource","description":"A prompt with a resource","#,
    r#""arguments":[{"name":"resourceUri","description":"URI of the resource","#,
    r#""required":true}]},"#,
    r#"{"name":"test_prompt_with_image","description":"A prompt with an image"}]}"#
);

const SIMPLE: &str = concat!(
    r#"{"messages":[{"role":"user","content":{"type":"text","#,
    r#""text":"This is a simple prompt for testing."}}]}"#
);

const IMAGE: &str = concat!(
    r#"{"messages":[{"role":"user","content":{"type":"image","data":""#,
    red_pixel_png!(),
    r#"","mimeType":"image/png"}},"#,
    r#"{"role":"user","content":{"type":"text","text":"Please analyze the image above."}}]}"#
);

/// What can be proposed for an argument of `test_prompt_with_arguments`.
const PROPOSALS: &[&str] = &["paris", "park", "party", "test", "testing"];
/// What can be proposed for the `{id}` of the resource template.
const IDS: &[&str] = &["123", "124", "200"];

#[derive(Deserialize)]
struct GetParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PromptArguments<'a> {
    #[serde(borrow)]
    arg1: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arg2: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resource_uri: Option<&'a RawValue>,
}

/// Writes the result of `prompts/get`.
pub(super) fn get(params: Option<&str>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let params: GetParams = parse(params)?;
    match params.name.as_ref() {
        "test_simple_prompt" => out.extend_from_slice(SIMPLE.as_bytes()),
        "test_prompt_with_image" => out.extend_from_slice(IMAGE.as_bytes()),
        "test_prompt_with_arguments" => {
            let arguments: PromptArguments = parse_arguments(params.arguments)?;
            let (Some(arg1), Some(arg2)) = (arguments.arg1, arguments.arg2) else {
                return Err(Refusal::invalid_params("arg1 and arg2 must be strings"));
            };
            let text = format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'");
            out.extend_from_slice(
                br#"{"messages":[{"role":"user","content":{"type":"text","text":"#,
            );
            push_string(out, &text);
            out.extend_from_slice(b"}}]}");
        }
        "test_prompt_with_embedded_resource" => {
            let arguments: PromptArguments = parse_arguments(params.arguments)?;
            let uri = string_argument(arguments.resource_uri, "resourceUri")?;
            out.extend_from_slice(br#"{"messages":[{"role":"user","content":{"type":"resource","#);
            out.extend_from_slice(br#""resource":{"uri":"#);
            out.extend_from_slice(uri.as_bytes());
            out.extend_from_slice(
                concat!(
                    r#","mimeType":"text/plain","#,
                    r#""text":"Embedded resource content for testing."}}},"#,
                    r#"{"role":"user","content":{"type":"text","#,
                    r#""text":"Please process the embedded resource above."}}]}"#
                )
                .as_bytes(),
            );
        }
        name => return Err(Refusal::invalid_params(format!("unknown prompt: {name}"))),
    }
    Ok(())
}

#[derive(Deserialize)]
struct CompleteParams<'a> {
    #[serde(borrow, rename = "ref")]
    reference: Reference<'a>,
    #[serde(borrow)]
    argument: Argument<'a>,
}

/// The kind of a reference follows from which of the two it has.
#[derive(Deserialize)]
struct Reference<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    uri: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Argument<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

/// Writes the result of `completion/complete`: what starts with the value so far.
pub(super) fn complete(params: Option<&str>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let CompleteParams { reference, argument } = parse(params)?;
    let proposals = match (reference.name.as_deref(), reference.uri.as_deref()) {
        (Some("test_prompt_with_arguments"), _) => match argument.name.as_ref() {
            "arg1" | "arg2" => PROPOSALS,
            _ => &[],
        },
        (None, Some("test://template/{id}/data")) if argument.name == "id" => IDS,
        (Some("test_prompt_with_embedded_resource"), _)
        | (None, Some("test://template/{id}/data")) => &[],
        _ => return Err(Refusal::invalid_params("ref names nothing that has arguments")),
    };
    out.extend_from_slice(br#"{"completion":{"values":["#);
    let mut total = 0;
    for proposal in proposals.iter().filter(|text| text.starts_with(argument.value.as_ref())) {
        if total > 0 {
            out.push(b',');
        }
        push_string(out, proposal);
        total += 1;
    }
    out.extend_from_slice(br#"],"total":"#);
    push_number(out, total);
    out.extend_from_slice(br#","hasMore":false}}"#);
    Ok(())
}
