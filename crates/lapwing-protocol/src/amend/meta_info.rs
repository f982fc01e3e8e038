//! Removes from a completion that was not streamed what only the added `return_meta_info` caused.

use std::ops::Range;

use serde_json::value::RawValue;

use super::object::{MemberLookup, Object, within};

/// The body without the `meta_info` of its choices; `Ok(None)` if there is none.
///
/// # Errors
///
/// Why the body cannot be changed: it cannot be read, or it names a member twice.
pub fn without_meta_info(body: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let text = std::str::from_utf8(body).map_err(|_| "is not UTF-8")?;
    let response = Object::read(text).ok_or("is not a JSON object")?;
    let choices = match response.find("choices") {
        MemberLookup::No => return Ok(None),
        MemberLookup::At(_) => response.value("choices").unwrap_or_default(),
        MemberLookup::Often => return Err("has choices twice"),
    };
    let choices: Vec<&RawValue> = serde_json::from_str(choices).map_err(|_| "has choices that are not a list")?;
    let mut cuts: Vec<Range<usize>> = Vec::new();
    for choice in choices {
        let at = within(text, choice.get()).start;
        let choice = Object::read(choice.get()).ok_or("has a choice that is not an object")?;
        match choice.find("meta_info") {
            MemberLookup::No => {}
            MemberLookup::At(member) => cuts.extend(choice.cut(member).map(|cut| at + cut.start..at + cut.end)),
            MemberLookup::Often => return Err("has meta_info twice"),
        }
    }
    if cuts.is_empty() {
        return Ok(None);
    }
    let mut kept = Vec::with_capacity(body.len());
    let mut from = 0;
    for cut in cuts {
        kept.extend_from_slice(body.get(from..cut.start).unwrap_or_default());
        from = cut.end;
    }
    kept.extend_from_slice(body.get(from..).unwrap_or_default());
    Ok(Some(kept))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::samples::{any_spacing, any_value, spaced};
    use super::*;

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for body in ["", "x", "[]", r#"{"choices":{}}"#, r#"{"choices":[1]}"#, r#"{"choices":[],"choices":[]}"#] {
            assert!(without_meta_info(body.as_bytes()).is_err(), "{body}");
        }
        assert!(without_meta_info(br#"{"choices":[{"meta_info":1,"meta_info":2}]}"#).is_err());
        assert_eq!(without_meta_info(br#"{"meta_info":{},"error":{"choices":[{"meta_info":1}]}}"#), Ok(None));
    }

    proptest! {
        #[test]
        fn what_is_left_is_what_would_have_been_written_without_the_option(
            choices in prop::collection::vec((any_value(), any_value(), any::<prop::sample::Index>()), 0..4),
            text in any_value(),
            spacing in any_spacing(),
        ) {
            let body = |asked: bool| {
                let choices: Vec<String> = choices.iter().enumerate().map(|(n, (message, meta, at))| {
                    let mut members = vec![("index".to_owned(), json!(n)), ("message".to_owned(), message.clone())];
                    if asked {
                        members.insert(at.index(3), ("meta_info".to_owned(), json!({"e2e_latency": 0.5, "x": meta})));
                    }
                    spaced(&members, spacing)
                }).collect();
                let separator = if spacing == 0 { "," } else { ", " };
                let rest = spaced(&[("x".to_owned(), text.clone()), ("object".to_owned(), Value::Null)], spacing);
                format!("{},\"choices\":[{}]}}", &rest[..rest.len() - 1], choices.join(separator)).into_bytes()
            };
            let plain = body(false);
            let expected = (!choices.is_empty()).then(|| plain.clone());
            prop_assert_eq!(without_meta_info(&body(true)), Ok(expected));
            prop_assert_eq!(without_meta_info(&plain), Ok(None));
        }

        #[test]
        fn any_bytes_are_read_without_harm(body in "[{}\\[\\]\",:a-z_ 0-9]{0,80}") {
            let _ = without_meta_info(body.as_bytes());
            let _ = without_meta_info(format!(r#"{{"choices":[{{"meta_info":{body}}}]}}"#).as_bytes());
        }
    }
}
