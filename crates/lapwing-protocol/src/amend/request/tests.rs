//! Requests and their changed forms, written by hand. Any changed request needs no second change.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::samples::{any_spacing, any_value, spaced};
use super::*;

const BOTH: AmendOptions = AmendOptions { include_usage: true, return_meta_info: true };

fn asked(body: &str) -> Option<String> {
    amend_request(body.as_bytes(), BOTH).map(|edit| String::from_utf8(edit.apply(body.as_bytes())).unwrap())
}

#[test]
fn usage_is_asked_for_where_the_client_did_not() {
    for (body, expected) in [
        (r#"{"stream":true}"#, r#"{"stream_options":{"include_usage":true},"stream":true}"#),
        ("{ \"stream\" : true }", r#"{"stream_options":{"include_usage":true}, "stream" : true }"#),
        (r#"{"stream":true,"stream_options":null}"#, r#"{"stream":true,"stream_options":{"include_usage":true}}"#),
        (r#"{"stream":true,"stream_options":{}}"#, r#"{"stream":true,"stream_options":{"include_usage":true}}"#),
        (r#"{"stream_options":{ "x":1},"stream":true}"#, r#"{"stream_options":{"include_usage":true, "x":1},"stream":true}"#),
        (
            r#"{"stream_options":{"include_usage": false},"stream":true}"#,
            r#"{"stream_options":{"include_usage": true},"stream":true}"#,
        ),
        (r#"{"str\u0065am":true}"#, r#"{"stream_options":{"include_usage":true},"str\u0065am":true}"#),
    ] {
        assert_eq!(asked(body).as_deref(), Some(expected));
    }
}

#[test]
fn meta_info_is_asked_for_where_nothing_streams() {
    assert_eq!(asked(r#"{"model":"m"}"#).unwrap(), r#"{"return_meta_info":true,"model":"m"}"#);
    assert_eq!(asked(r#"{"stream":false,"a":1}"#).unwrap(), r#"{"return_meta_info":true,"stream":false,"a":1}"#);
    assert_eq!(asked(r#"{"return_meta_info":false}"#).unwrap(), r#"{"return_meta_info":true}"#);
    let usage_only = AmendOptions { include_usage: true, ..AmendOptions::default() };
    let meta_only = AmendOptions { return_meta_info: true, ..AmendOptions::default() };
    assert_eq!(amend_request(br#"{"model":"m"}"#, usage_only), None);
    assert_eq!(amend_request(br#"{"stream":true}"#, meta_only), None);
}

#[test]
fn what_is_unusual_or_asked_already_is_left_alone() {
    for body in [
        "",
        "{}",
        "[]",
        "{\"stream\":true",
        "{\"stream\":true}}",
        r#"{"stream":1}"#,
        r#"{"stream":"true"}"#,
        r#"{"stream":true,"stream":true}"#,
        r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"stream":true,"stream_options":{"include_usage":1}}"#,
        r#"{"stream":true,"stream_options":{"include_usage":false,"include_usage":false}}"#,
        r#"{"stream":true,"stream_options":[]}"#,
        r#"{"stream":true,"stream_options":{},"stream_options":{}}"#,
        r#"{"stream":true,"stream_options":{"continuous_usage_stats":true}}"#,
        r#"{"return_meta_info":true}"#,
        r#"{"return_meta_info":"no"}"#,
        "\u{feff}{\"stream\":true}",
    ] {
        assert_eq!(asked(body), None, "{body}");
    }
    assert_eq!(amend_request(b"{\"stream\":true,\"a\":\"\xff\"}", BOTH), None);
}

proptest! {
    #[test]
    fn a_changed_body_says_what_it_said_and_the_option(
        fields in prop::collection::vec(("[a-z]{1,6}", any_value()), 0..6),
        stream in prop::option::of(any::<bool>()),
        options in prop::option::of(prop::option::of(any::<bool>())),
        at in any::<prop::sample::Index>(),
        spacing in any_spacing(),
    ) {
        let mut members: Vec<(String, Value)> = fields;
        members.retain(|(name, _)| !["stream", "stream_options", "return_meta_info"].contains(&name.as_str()));
        members.sort_by(|a, b| a.0.cmp(&b.0));
        members.dedup_by(|a, b| a.0 == b.0);
        members.insert(0, ("model".to_owned(), json!("m")));
        members.dedup_by(|a, b| a.0 == b.0);
        if let Some(stream) = stream {
            members.insert(at.index(members.len() + 1), ("stream".to_owned(), json!(stream)));
        }
        if let Some(usage) = options {
            let value = usage.map_or(json!({"include_obfuscation": false}), |usage| json!({"include_usage": usage}));
            members.insert(at.index(members.len() + 1), ("stream_options".to_owned(), value));
        }
        let body = spaced(&members, spacing);
        let mut expected: Value = serde_json::from_str(&body).unwrap();
        prop_assume!(expected.as_object().unwrap().len() == members.len());
        let is_streamed = stream == Some(true);
        if is_streamed {
            expected["stream_options"]["include_usage"] = json!(true);
        } else {
            expected["return_meta_info"] = json!(true);
        }
        match asked(&body) {
            Some(changed) => {
                prop_assert_eq!(serde_json::from_str::<Value>(&changed).unwrap(), expected);
                prop_assert!(changed.len() > body.len() || changed.len() + 1 == body.len());
            }
            None => prop_assert!(is_streamed && options == Some(Some(true)), "{}", body),
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(body in prop::collection::vec(any::<u8>(), 0..200), json in "[{}\\[\\]\",:a-u_ 0-9]{0,80}") {
        for body in [body.as_slice(), json.as_bytes()] {
            if let Some(edit) = amend_request(body, BOTH) {
                prop_assert!(serde_json::from_slice::<Value>(&edit.apply(body)).is_ok());
            }
        }
    }
}
