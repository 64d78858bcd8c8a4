//! The fixtures of the conformance suite, as its scenarios of 2025-11-25 document them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Said, World, text};
use crate::upstream::builtin::About;

#[test]
fn every_listed_tool_is_described_and_can_be_called() {
    let mut world = World::initialized();
    let list = world.result("tools/list", "{}");
    let tools = list["tools"].as_array().expect("an array");
    let names: BTreeSet<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names.len(), tools.len(), "names are unique");
    for tool in tools {
        assert!(tool["description"].is_string(), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        let name = tool["name"].as_str().expect("a string");
        let arguments = json!({ "text": "t", "prompt": "p", "message": "m", "count": 0, "ms": 0 });
        world.record.said.clear();
        world.call(1, name, arguments);
        world.run();
        let last = world.record.said.last();
        assert!(matches!(last, Some(Said::Result(1, _) | Said::Request(..))), "{name}: {last:?}");
        world.builtin.handle_cancelled(1);
    }
}

#[test]
fn content_of_each_kind() {
    let mut world = World::initialized();
    let simple = world.tool_result("test_simple_text");
    assert_eq!(simple, text("This is a simple text response for testing."));
    let image = world.tool_result("test_image_content");
    assert_eq!(image["content"][0]["mimeType"], "image/png");
    let audio = world.tool_result("test_audio_content");
    assert_eq!(audio["content"][0]["mimeType"], "audio/wav");
    let resource = world.tool_result("test_embedded_resource");
    assert_eq!(resource["content"][0]["resource"]["uri"], "test://embedded-resource");
    let mixed = world.tool_result("test_multiple_content_types");
    let kinds: Vec<&Value> =
        mixed["content"].as_array().expect("an array").iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["text", "image", "resource"]);
    let failed = world.tool_result("test_error_handling");
    assert_eq!(failed["isError"], true);
}

#[test]
fn logging_sends_three_messages_50_ms_apart_unless_the_level_is_higher() {
    let play = |level: &str| {
        let mut world = World::initialized();
        assert_eq!(
            world.result("logging/setLevel", &json!({ "level": level }).to_string()),
            json!({})
        );
        world.record.said.clear();
        world.call(2, "test_tool_with_logging", json!({}));
        assert_eq!(world.run(), Duration::from_millis(100));
        world.record.said
    };
    let said = play("debug");
    let texts: Vec<&Value> = said
        .iter()
        .filter_map(|said| match said {
            Said::Notify(About::Call(2), method, params) if method == "notifications/message" => {
                Some(&params["data"])
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        texts,
        ["Tool execution started", "Tool processing data", "Tool execution completed"]
    );
    assert_eq!(said.last(), Some(&Said::Result(2, text("Tool with logging executed"))));
    assert_eq!(play("warning"), [Said::Result(2, text("Tool with logging executed"))]);
    let mut world = World::initialized();
    assert_eq!(world.refusal("logging/setLevel", r#"{"level":"loud"}"#).0, -32602);
}

#[test]
fn progress_is_0_50_and_100() {
    let mut world = World::initialized();
    world.call_with_token(2, "test_tool_with_progress", json!({}), "\"progress-test-1\"");
    assert_eq!(world.run(), Duration::from_millis(100));
    let mut expected: Vec<Said> = [0, 50, 100]
        .map(|progress| {
            let params =
                json!({ "progressToken": "progress-test-1", "progress": progress, "total": 100 });
            Said::Notify(About::Call(2), "notifications/progress".into(), params)
        })
        .to_vec();
    expected.push(Said::Result(2, text("Tool with progress executed")));
    assert_eq!(world.record.said, expected);
}

/// Calls a tool that asks, gives that answer, and returns the params asked with and the result.
fn asked(
    tool: &str,
    arguments: Value,
    method: &str,
    answer: Result<Value, Value>,
) -> (Value, Value) {
    let mut world = World::initialized();
    world.call(2, tool, arguments);
    let (id, params) = match &world.record.said[..] {
        [Said::Request(About::Call(2), id, asked, params)] if asked == method => {
            (*id, params.clone())
        }
        other => panic!("{other:?}"),
    };
    world.record.said.clear();
    let raw = answer.map(|value| value.to_string()).map_err(|value| value.to_string());
    let raw = raw.as_deref().map_err(|error| error.as_str());
    world.builtin.handle_response(world.now, id, raw, &mut world.record);
    world.builtin.handle_response(world.now, id, raw, &mut world.record);
    match &world.record.said[..] {
        [Said::Result(2, result)] => (params, result.clone()),
        other => panic!("one answer, also to a repeated response: {other:?}"),
    }
}

#[test]
fn sampling_asks_the_client_and_returns_its_text() {
    let answer = json!({
        "role": "assistant", "model": "m", "content": { "type": "text", "text": "a \"quote\"" },
    });
    let ask = |answer| {
        asked("test_sampling", json!({ "prompt": "p\n" }), "sampling/createMessage", answer)
    };
    let (params, result) = ask(Ok(answer));
    let content = json!({ "type": "text", "text": "p\n" });
    let expected =
        json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 100 });
    assert_eq!(params, expected);
    assert_eq!(result, text("LLM response: a \"quote\""));

    let (_, result) = ask(Err(json!({ "code": -1, "message": "no" })));
    assert_eq!(result["isError"], true);
    assert_eq!(result["content"][0]["text"], "The client refused sampling/createMessage: no");
    let (_, result) = ask(Ok(json!({ "role": "assistant" })));
    assert_eq!(result["isError"], true);
}

#[test]
fn elicitation_asks_the_user_and_returns_the_answer() {
    let answer = json!({ "action": "accept", "content": { "username": "u" } });
    let ask = |tool, arguments| asked(tool, arguments, "elicitation/create", Ok(answer.clone()));
    let (params, result) = ask("test_elicitation", json!({ "message": "please" }));
    assert_eq!(params["message"], "please");
    assert_eq!(params["requestedSchema"]["required"], json!(["username", "email"]));
    assert_eq!(result, text(r#"User response: action=accept, content={"username":"u"}"#));

    let (params, result) = ask("test_elicitation_sep1034_defaults", json!({}));
    let properties = &params["requestedSchema"]["properties"];
    assert_eq!(properties["score"]["default"], 95.5);
    assert_eq!(properties["verified"]["default"], true);
    let completed = r#"Elicitation completed: action=accept, content={"username":"u"}"#;
    assert_eq!(result, text(completed));

    let (params, _) = ask("test_elicitation_sep1330_enums", json!({}));
    let properties = &params["requestedSchema"]["properties"];
    assert_eq!(properties.as_object().map(serde_json::Map::len), Some(5));
    assert_eq!(properties["titledMulti"]["items"]["anyOf"][0]["const"], "value1");
}

#[test]
fn a_client_without_the_capability_is_not_asked() {
    for (capabilities, sampling, elicitation) in [
        (json!({}), false, false),
        (json!({ "sampling": {} }), true, false),
        (json!({ "elicitation": {} }), false, true),
        (json!({ "elicitation": { "url": {} } }), false, false),
        (json!({ "elicitation": { "url": {}, "form": {} } }), false, true),
    ] {
        let mut world = World::new();
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities }).to_string();
        world.request(1, "initialize", &params);
        for (tool, offered) in [("test_sampling", sampling), ("test_elicitation", elicitation)] {
            world.record.said.clear();
            world.call(2, tool, json!({ "prompt": "p", "message": "m" }));
            match &world.record.said[..] {
                [Said::Request(..)] => assert!(offered, "{capabilities}"),
                [Said::Result(2, result)] => {
                    assert_eq!(result["isError"], true);
                    assert!(!offered, "{capabilities}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn json_schema_keywords_are_listed_untouched() {
    let list = World::initialized().result("tools/list", "{}");
    let tools = list["tools"].as_array().expect("an array");
    let schema = tools
        .iter()
        .find(|tool| tool["name"] == "json_schema_2020_12_tool")
        .map(|tool| &tool["inputSchema"])
        .expect("the tool");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["$defs"]["address"]["$anchor"], "addressDef");
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["allOf"][0]["anyOf"].is_array());
    for keyword in ["if", "then", "else"] {
        assert!(schema[keyword].is_object(), "{keyword}");
    }
}

#[test]
fn resources_are_listed_read_and_not_found() {
    let mut world = World::initialized();
    let list = world.result("resources/list", "{}");
    for resource in list["resources"].as_array().expect("an array") {
        let params = json!({ "uri": resource["uri"] }).to_string();
        let contents = world.result("resources/read", &params);
        assert_eq!(contents["contents"][0]["uri"], resource["uri"]);
        assert_eq!(contents["contents"][0]["mimeType"], resource["mimeType"]);
    }
    let templates = world.result("resources/templates/list", "{}");
    assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "test://template/{id}/data");
    let read = world.result("resources/read", r#"{"uri":"test://template/1\"3/data"}"#);
    assert_eq!(read["contents"][0]["uri"], "test://template/1\"3/data");
    let data = read["contents"][0]["text"].as_str().expect("a text");
    let data: Value = serde_json::from_str(data).expect("JSON");
    let expected = json!({ "id": "1\"3", "templateTest": true, "data": "Data for ID: 1\"3" });
    assert_eq!(data, expected);
    for uri in ["test://no", "test://template//data", "test://template/a/b/data", ""] {
        let params = json!({ "uri": uri }).to_string();
        let data = Some(json!({ "uri": uri }));
        let expected = Said::Error(1, -32002, "Resource not found".into(), data);
        assert_eq!(world.answer("resources/read", &params), expected);
    }
}

#[test]
fn a_subscriber_hears_of_the_watched_resource_until_it_unsubscribes() {
    let mut world = World::initialized();
    let watched = r#"{"uri":"test://watched-resource"}"#;
    let mut updates = |method: &str, level: &str| {
        assert_eq!(world.result(method, watched), json!({}));
        world.record.said.clear();
        world.request(2, "logging/setLevel", &json!({ "level": level }).to_string());
        world.record.said.retain(|said| matches!(said, Said::Notify(..)));
        std::mem::take(&mut world.record.said)
    };
    let params = json!({ "uri": "test://watched-resource" });
    let method = "notifications/resources/updated".to_owned();
    let updated = Said::Notify(About::Standalone, method, params);
    assert_eq!(updates("resources/subscribe", "error"), [updated]);
    assert_eq!(updates("resources/subscribe", "error"), [], "nothing changed");
    assert_eq!(updates("resources/unsubscribe", "info"), []);
    assert_eq!(world.refusal("resources/subscribe", r#"{"uri":"test://no"}"#).0, -32002);
    let read = world.result("resources/read", watched);
    assert_eq!(read["contents"][0]["text"], "Log messages are sent from level info on.");
}

#[test]
fn prompts_are_listed_and_filled_in() {
    let mut world = World::initialized();
    let list = world.result("prompts/list", "{}");
    for prompt in list["prompts"].as_array().expect("an array") {
        let arguments = json!({ "arg1": "one", "arg2": "t\"wo", "resourceUri": "test://r" });
        let params = json!({ "name": prompt["name"], "arguments": arguments }).to_string();
        let result = world.result("prompts/get", &params);
        assert_eq!(result["messages"][0]["role"], "user");
        let content = &result["messages"][0]["content"];
        match prompt["name"].as_str().expect("a string") {
            "test_prompt_with_arguments" => {
                assert_eq!(content["text"], "Prompt with arguments: arg1='one', arg2='t\"wo'");
            }
            "test_prompt_with_embedded_resource" => {
                assert_eq!(content["resource"]["uri"], "test://r");
            }
            "test_prompt_with_image" => assert_eq!(content["mimeType"], "image/png"),
            _ => assert_eq!(content["text"], "This is a simple prompt for testing."),
        }
    }
    for name in ["no", "test_prompt_with_arguments", "test_prompt_with_embedded_resource"] {
        let params = json!({ "name": name }).to_string();
        assert_eq!(world.refusal("prompts/get", &params).0, -32602, "{name}");
    }
}

#[test]
fn completion_proposes_what_starts_with_the_value() {
    let mut world = World::initialized();
    let mut complete = |reference: Value, name: &str, value: &str| {
        let argument = json!({ "name": name, "value": value });
        let params = json!({ "ref": reference, "argument": argument }).to_string();
        world.answer("completion/complete", &params)
    };
    let prompt = json!({ "type": "ref/prompt", "name": "test_prompt_with_arguments" });
    let template = json!({ "type": "ref/resource", "uri": "test://template/{id}/data" });
    for (reference, name, value, values) in [
        (&prompt, "arg1", "par", json!(["paris", "park", "party"])),
        (&prompt, "arg2", "zzz", json!([])),
        (&template, "id", "12", json!(["123", "124"])),
    ] {
        let total = values.as_array().map(Vec::len);
        let completion = json!({ "values": values, "total": total, "hasMore": false });
        let expected = Said::Result(1, json!({ "completion": completion }));
        assert_eq!(complete(reference.clone(), name, value), expected);
    }
    let unknown = complete(json!({ "type": "ref/prompt", "name": "no" }), "a", "");
    assert!(matches!(unknown, Said::Error(1, -32602, ..)));
}

#[test]
fn ping_is_answered() {
    assert_eq!(World::new().result("ping", "{}"), json!({}));
}
