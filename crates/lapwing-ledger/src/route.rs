//! Folds a path to a route: identifiers become placeholders, so that there are few routes.
//!
//! `/v2/models/digits/versions/3/infer` becomes `/v2/models/{model}/versions/{version}/infer`, and the model is `digits`. A
//! segment that looks like an identifier (a number, a UUID, a long hexadecimal or random string) becomes `{id}`. A method that
//! HTTP does not know becomes `_OTHER`, as OpenTelemetry's semantic conventions name it.

use std::borrow::Cow;

use super::names::{LABEL_BYTES, label_text};

/// A folded path and the model that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedRoute<'a> {
    /// Method and folded path, such as `POST /v2/models/{model}/infer`: a label's text, so its length is bounded.
    pub name: String,
    /// The model, if the path names one.
    pub model: Option<&'a str>,
}

/// How many segments of a path are kept; the rest is folded to `…`.
const SEGMENTS: usize = 8;
/// A segment that is longer, in bytes, is an identifier.
const SEGMENT_BYTES: usize = 64;

/// The route of a request by its method and path (without query). `names_model` says that the path's second segment is a model and the
/// third a version, whatever they look like.
#[must_use]
pub fn fold_path<'a>(method: &str, path: &'a str, names_model: bool) -> FoldedRoute<'a> {
    let mut name = String::with_capacity(path.len().min(LABEL_BYTES) + 16);
    name.push_str(known_method(method));
    name.push(' ');
    let mut model = None;
    let mut before = "";
    let rest = path.strip_prefix('/').unwrap_or(path);
    for (i, segment) in rest.split('/').enumerate() {
        name.push('/');
        if i == SEGMENTS {
            name.push('…');
            break;
        }
        match before {
            _ if names_model && i == 1 => {
                model = Some(segment);
                name.push_str("{model}");
            }
            _ if names_model && i == 2 && !segment.is_empty() => name.push_str("{version}"),
            "models" | "model" if !segment.is_empty() && !is_verb(segment) => {
                // TensorFlow Serving puts the verb after a colon: /v1/models/resnet:predict
                let (id, verb) = segment.split_once(':').map_or((segment, None), |(id, verb)| (id, Some(verb)));
                model = Some(id);
                name.push_str("{model}");
                if let Some(verb) = verb {
                    name.push(':');
                    name.push_str(if verb.len() > SEGMENT_BYTES { "{id}" } else { verb });
                }
            }
            "versions" if !segment.is_empty() => name.push_str("{version}"),
            _ if is_id(segment) => name.push_str("{id}"),
            _ => name.push_str(segment),
        }
        before = segment;
    }
    if let Cow::Owned(label) = label_text(&name) {
        name = label;
    }
    FoldedRoute { name, model }
}

/// The method, or `_OTHER` for one that HTTP does not know.
fn known_method(method: &str) -> &str {
    match method {
        "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => method,
        _ => "_OTHER",
    }
}

/// Words that follow `models` in a path and are not a model: `/v2/repository/models/index`.
fn is_verb(segment: &str) -> bool {
    matches!(segment, "index" | "stats" | "infer" | "config" | "ready")
}

fn is_id(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    let digits = bytes.iter().filter(|b| b.is_ascii_digit()).count();
    let all_hex = bytes.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-');
    let is_number = !bytes.is_empty() && digits == bytes.len();
    let is_hex = bytes.len() >= 8 && all_hex && digits > 0;
    let is_random = bytes.len() >= 20 && digits >= 4;
    is_number || is_hex || is_random || bytes.len() > SEGMENT_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_model_in_the_second_segment_folds_where_the_caller_says_so() {
        let folded = |names_model| fold_path("POST", "/predictions/bert/1.0", names_model);
        let named = |of: FoldedRoute<'_>| (of.name, of.model.map(str::to_owned));
        assert_eq!(named(folded(true)), ("POST /predictions/{model}/{version}".to_owned(), Some("bert".to_owned())));
        assert_eq!(named(folded(false)), ("POST /predictions/bert/1.0".to_owned(), None));
    }

    proptest! {
        #[test]
        fn any_path_folds_to_a_bounded_route(path in "\\PC{0,400}", names_model: bool) {
            prop_assert!(fold_path("GET", &path, names_model).name.len() <= LABEL_BYTES);
        }
    }
}
