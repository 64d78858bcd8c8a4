//! Tools that the official conformance suite calls by name (2025-11-25), as data.
//!
//! Invariant: names and texts are those that the suite's scenarios document; changing one fails
//! the suite.

use std::time::Duration;

use super::ask::Question;
use super::tools::{Action, Tool};

/// A red pixel, PNG, base64. A macro, since `concat!` takes literals alone.
macro_rules! red_pixel_png {
    () => {
        concat!(
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AA",
            "AAMBAQD3A0FDAAAAAElFTkSuQmCC"
        )
    };
}
pub(super) use red_pixel_png;

/// A millisecond of silence, WAV (8 kHz, 8 bit, mono), base64.
macro_rules! silence_wav {
    () => {
        "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA=="
    };
}

/// Time between two events of the fixtures that take time.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The input schema of a tool without arguments.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "test_simple_text",
        description: "Conformance fixture: a text",
        input_schema: NO_ARGUMENTS,
        action: Action::Answer(
            r#"{"content":[{"type":"text","text":"This is a simple text response for testing."}]}"#,
        ),
    },
    Tool {
        name: "test_image_content",
        description: "Conformance fixture: an image",
        input_schema: NO_ARGUMENTS,
        action: Action::Answer(concat!(
            r#"{"content":[{"type":"image","data":""#,
            red_pixel_png!(),
            r#"","mimeType":"image/png"}]}"#
        )),
    },
    Tool {
        name: "test_audio_content",
        description: "Conformance fixture: a sound",
        input_schema: NO_ARGUMENTS,
        action: Action::Answer(concat!(
            r#"{"content":[{"type":"audio","data":""#,
            silence_wav!(),
            r#"","mimeType":"audio/wav"}]}"#
        )),
    },
    Tool {
        name: "test_embedded_resource",
        description: "Conformance fixture: an embedded resource",
        input_schema: NO_ARGUMENTS,
        action: Action::Answer(concat!(
            r#"{"content":[{"type":"resource","resource":{"uri":"test://embedded-resource","#,
            r#""mimeType":"text/plain","text":"This is an embedded resource content."}}]}"#
        )),
    },
    Tool {
        name: "test_multiple_content_types",
        description: "Conformance fixture: a text, an image and a resource",
        input_schema: NO_ARGUMENTS,
        action: Action::Answer(concat!(
            r#"{"content":[{"type":"text","text":"Multiple content types test:"},"#,
            r#"{"type":"image","data":""#,
            red_pixel_png!(),
            r#"","mimeType":"image/png"},"#,
            r#"{"type":"resource","resource":{"uri":"test://mixed-content-resource","#,
            r#""mimeType":"application/json","text":"{\"test\":\"data\",\"value\":123}"}}]}"#
        )),
    },
    Tool {
        name: "test_tool_with_logging",
        description: "Conformance fixture: three log messages 50 ms apart",
        input_schema: NO_ARGUMENTS,
        action: Action::Log {
            logger: "test_tool_with_logging",
            texts: &["Tool execution started", "Tool processing data", "Tool execution completed"],
            text: "Tool with logging executed",
        },
    },
    Tool {
        name: "test_error_handling",
        description: "Conformance fixture: a tool that fails",
        input_schema: NO_ARGUMENTS,
        action: Action::Answer(concat!(
            r#"{"content":[{"type":"text","#,
            r#""text":"This tool intentionally returns an error for testing"}],"isError":true}"#
        )),
    },
    Tool {
        name: "test_tool_with_progress",
        description: "Conformance fixture: progress 0, 50 and 100 of 100, 50 ms apart",
        input_schema: NO_ARGUMENTS,
        action: Action::Percent { text: "Tool with progress executed" },
    },
    Tool {
        name: "test_sampling",
        description: "Conformance fixture: asks the client's model",
        input_schema: concat!(
            r#"{"type":"object","properties":{"prompt":{"type":"string","#,
            r#""description":"What the model is asked"}},"required":["prompt"]}"#
        ),
        action: Action::Ask(Question::Sampling),
    },
    Tool {
        name: "test_elicitation",
        description: "Conformance fixture: asks the user",
        input_schema: concat!(
            r#"{"type":"object","properties":{"message":{"type":"string","#,
            r#""description":"What the user is asked"}},"required":["message"]}"#
        ),
        action: Action::Ask(Question::Elicitation),
    },
    Tool {
        name: "test_elicitation_sep1034_defaults",
        description: "Conformance fixture: asks the user, with default values (SEP-1034)",
        input_schema: NO_ARGUMENTS,
        action: Action::Ask(Question::Defaults),
    },
    Tool {
        name: "test_elicitation_sep1330_enums",
        description: "Conformance fixture: asks the user, with choices (SEP-1330)",
        input_schema: NO_ARGUMENTS,
        action: Action::Ask(Question::Enums),
    },
    Tool {
        name: "json_schema_2020_12_tool",
        description: "Conformance fixture: an input schema of JSON Schema 2020-12",
        input_schema: concat!(
            r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","#,
            r#""$defs":{"address":{"$anchor":"addressDef","type":"object","#,
            r#""properties":{"street":{"type":"string"},"city":{"type":"string"}}}},"#,
            r##""properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"##,
            r#""contactMethod":{"type":"string","enum":["phone","email"]},"#,
            r#""phone":{"type":"string"},"email":{"type":"string"}},"#,
            r#""allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],"#,
            r#""if":{"properties":{"contactMethod":{"const":"phone"}},"#,
            r#""required":["contactMethod"]},"#,
            r#""then":{"required":["phone"]},"else":{"required":["email"]},"#,
            r#""additionalProperties":false}"#
        ),
        action: Action::Answer(r#"{"content":[{"type":"text","text":"The schema was met."}]}"#),
    },
];
