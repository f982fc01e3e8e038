//! What to insert into a request, and where. Positions are bytes from the start of the body.

use std::ops::Range;

use super::Options;
use super::object::{Found, Object, within};

/// What a changed request asks for that the client did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Token usage at the end of a stream.
    Usage,
    /// `meta_info` in each choice of a response that is not streamed.
    MetaInfo,
}

/// A change of a body: `by` stands in the place of `replaced`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is asked for.
    pub added: Added,
    replaced: Range<usize>,
    by: &'static str,
}

impl Edit {
    const fn insert(added: Added, at: usize, by: &'static str) -> Self {
        Self { added, replaced: at..at, by }
    }

    /// The changed body.
    #[must_use]
    pub fn apply(&self, body: &[u8]) -> Vec<u8> {
        let (before, rest) = body.split_at(self.replaced.start.min(body.len()));
        let after = rest.get(self.replaced.len()..).unwrap_or_default();
        [before, self.by.as_bytes(), after].concat()
    }
}

/// How to change the body of a completion request, if the client did not ask for it itself. Bodies that are no JSON
/// object, name a member twice, or have another type in it than its own are left alone.
#[must_use]
pub fn ask(body: &[u8], options: Options) -> Option<Edit> {
    let text = std::str::from_utf8(body).ok()?;
    let request = Object::read(text)?;
    let is_streamed = match request.find("stream") {
        Found::No => false,
        Found::At(_) => match request.value("stream")? {
            "true" => true,
            "false" | "null" => false,
            _ => return None,
        },
        Found::Often => return None,
    };
    if request.is_empty() {
        None
    } else if is_streamed {
        options.include_usage.then(|| usage(text, &request)).flatten()
    } else {
        let edit = |at, by| Edit { added: Added::MetaInfo, replaced: at, by };
        options.return_meta_info.then(|| switch(&request, "return_meta_info", edit, r#""return_meta_info":true,"#)).flatten()
    }
}

fn usage(text: &str, request: &Object<'_>) -> Option<Edit> {
    let at = match request.find("stream_options") {
        Found::No => {
            let by = r#""stream_options":{"include_usage":true},"#;
            return Some(Edit::insert(Added::Usage, request.inside(), by));
        }
        Found::At(at) => request.span(at)?,
        Found::Often => return None,
    };
    let value = text.get(at.clone())?;
    if value == "null" {
        return Some(Edit { added: Added::Usage, replaced: at, by: r#"{"include_usage":true}"# });
    }
    let options = Object::read(value)?;
    if !matches!(options.find("continuous_usage_stats"), Found::No) {
        return None; // usage in every chunk (vLLM) depends on the option: what it would be without cannot be told
    }
    let start = within(text, value).start;
    let edit = |at: Range<usize>, by| Edit { added: Added::Usage, replaced: start + at.start..start + at.end, by };
    let by = if options.is_empty() { r#""include_usage":true"# } else { r#""include_usage":true,"# };
    switch(&options, "include_usage", edit, by)
}

/// Turns the switch of that name on where it is off; inserts `by` where there is none.
fn switch(object: &Object<'_>, name: &str, edit: impl Fn(Range<usize>, &'static str) -> Edit, by: &'static str) -> Option<Edit> {
    match object.find(name) {
        Found::No => Some(edit(object.inside()..object.inside(), by)),
        Found::At(at) => matches!(object.value(name)?, "false" | "null").then(|| Some(edit(object.span(at)?, "true"))).flatten(),
        Found::Often => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::samples::{any_spacing, any_value, spaced};
    use super::*;

    const BOTH: Options = Options { include_usage: true, return_meta_info: true };

    fn asked(body: &str) -> Option<String> {
        ask(body.as_bytes(), BOTH).map(|edit| String::from_utf8(edit.apply(body.as_bytes())).unwrap())
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
        let usage_only = Options { include_usage: true, ..Options::default() };
        let meta_only = Options { return_meta_info: true, ..Options::default() };
        assert_eq!(ask(br#"{"model":"m"}"#, usage_only), None);
        assert_eq!(ask(br#"{"stream":true}"#, meta_only), None);
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
        assert_eq!(ask(b"{\"stream\":true,\"a\":\"\xff\"}", BOTH), None);
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
                if let Some(edit) = ask(body, BOTH) {
                    prop_assert!(serde_json::from_slice::<Value>(&edit.apply(body)).is_ok());
                }
            }
        }
    }
}
