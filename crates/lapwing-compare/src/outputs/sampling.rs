//! Whether a request lets a model sample its text at random, so that two answers to it may differ.

use bytes::Bytes;
use http::HeaderMap;

use super::decode::content::whole;
use super::decode::document::{Document, DocumentValue};

/// Where requests of generating APIs have their sampling parameters, other than at the top of the document: Ollama, TGI, SGLang.
const PLACES: [&str; 3] = ["options", "parameters", "sampling_params"];

/// Whether the text of the answer to this request may be another each time: its body neither says that it is not to be drawn (temperature
/// 0, `do_sample: false`, `top_k: 1`) nor gives a seed. A body larger than `limit`, or one that is no JSON, may.
#[must_use]
pub fn may_be_drawn(headers: &HeaderMap, body: &[Bytes], limit: usize) -> bool {
    let Ok(body) = whole(headers, body, limit) else { return true };
    let Ok(document) = Document::parse(&body) else { return true };
    let root = document.root();
    let places = || PLACES.iter().filter_map(|place| root.get(place)).chain([root]);
    let number = |key: &str| places().find_map(|place| Some(place.get(key)?.number()?.as_f64()));
    let flag = |key: &str| places().find_map(|place| flag(place.get(key)?));
    if number("temperature") == Some(0.0) || number("top_k") == Some(1.0) || number("seed").is_some() {
        return false;
    }
    // TGI does not sample unless it is asked to
    let is_tgi = root.get("inputs").is_some() && number("temperature").is_none();
    flag("do_sample").unwrap_or(!is_tgi)
}

fn flag(value: DocumentValue<'_>) -> Option<bool> {
    if let super::decode::Node::Bool(is_true) = value.node() { Some(is_true) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_says_so_is_not_drawn() {
        for (body, expected) in [
            (r#"{"messages":[]}"#, true),
            (r#"{"messages":[],"temperature":0.7}"#, true),
            (r#"{"messages":[],"temperature":0}"#, false),
            (r#"{"messages":[],"temperature":0.0,"top_k":40}"#, false),
            (r#"{"messages":[],"temperature":1,"seed":7}"#, false),
            (r#"{"prompt":"x","options":{"temperature":0}}"#, false),
            (r#"{"prompt":"x","options":{"temperature":0.8}}"#, true),
            (r#"{"inputs":"x","parameters":{"max_new_tokens":3}}"#, false),
            (r#"{"inputs":"x","parameters":{"do_sample":true}}"#, true),
            (r#"{"text":"x","sampling_params":{"temperature":0}}"#, false),
            (r#"{"text_input":"x","top_k":1}"#, false),
            ("no json", true),
        ] {
            assert_eq!(may_be_drawn(&HeaderMap::new(), &[Bytes::from(body)], 1 << 20), expected, "{body}");
        }
        assert!(may_be_drawn(&HeaderMap::new(), &[Bytes::from(r#"{"temperature":0}"#)], 4));
    }
}
