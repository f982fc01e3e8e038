//! Folds a path to a route: identifiers become placeholders, so that there are few routes.
//!
//! `/v2/models/digits/versions/3/infer` becomes `/v2/models/{model}/versions/{version}/infer`, and the model is `digits`. A
//! segment that looks like an identifier (a number, a UUID, a long hexadecimal or random string) becomes `{id}`. A method that
//! HTTP does not know becomes `_OTHER`, as OpenTelemetry's semantic conventions name it.

use std::borrow::Cow;

use super::detect::torch_serve;
use lapwing_ledger::{LABEL_BYTES, label_text};

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

/// The route of a request by its method and path (without query).
#[must_use]
pub fn fold_route<'a>(method: &str, path: &'a str) -> FoldedRoute<'a> {
    let mut name = String::with_capacity(path.len().min(LABEL_BYTES) + 16);
    name.push_str(known_method(method));
    name.push(' ');
    let mut model = None;
    let mut before = "";
    let of_torch_serve = torch_serve(path).is_some();
    let rest = path.strip_prefix('/').unwrap_or(path);
    for (i, segment) in rest.split('/').enumerate() {
        name.push('/');
        if i == SEGMENTS {
            name.push('…');
            break;
        }
        match before {
            _ if of_torch_serve && i == 1 => {
                model = Some(segment);
                name.push_str("{model}");
            }
            _ if of_torch_serve && i == 2 && !segment.is_empty() => name.push_str("{version}"),
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
    fn ids_fold_and_models_are_named() {
        for (path, name, model) in [
            ("/v2/models/digits/infer", "POST /v2/models/{model}/infer", Some("digits")),
            ("/v2/models/a.b/versions/3/infer", "POST /v2/models/{model}/versions/{version}/infer", Some("a.b")),
            ("/v1/models/resnet:predict", "POST /v1/models/{model}:predict", Some("resnet")),
            ("/v1/models", "POST /v1/models", None),
            ("/v2/repository/models/index", "POST /v2/repository/models/index", None),
            ("/predictions/bert", "POST /predictions/{model}", Some("bert")),
            ("/explanations/models/1.0", "POST /explanations/{model}/{version}", Some("models")),
            ("/v1/predictions/rain", "POST /v1/predictions/rain", None),
            ("/predictions/rain/1/hourly", "POST /predictions/rain/{id}/hourly", None),
            ("/v1/chat/completions", "POST /v1/chat/completions", None),
            ("/users/42/orders/9f86d081884c7d65", "POST /users/{id}/orders/{id}", None),
            ("/x/123e4567-e89b-12d3-a456-426614174000", "POST /x/{id}", None),
            ("/inference.GRPCInferenceService/ModelInfer", "POST /inference.GRPCInferenceService/ModelInfer", None),
            ("/", "POST /", None),
        ] {
            let r = fold_route("POST", path);
            assert_eq!((r.name.as_str(), r.model), (name, model), "{path}");
        }
    }

    #[test]
    fn long_and_unknown_parts_fold() {
        let long = "x".repeat(60_000);
        for (method, path, name) in [
            (long.as_str(), "/a".to_owned(), "_OTHER /a"),
            ("PROPFIND", "/a".to_owned(), "_OTHER /a"),
            ("get", "/a".to_owned(), "_OTHER /a"),
            ("PATCH", format!("/{long}"), "PATCH /{id}"),
            ("POST", format!("/v1/models/m:{long}"), "POST /v1/models/{model}:{id}"),
            ("POST", format!("/v1/models/{long}:predict"), "POST /v1/models/{model}:predict"),
        ] {
            assert_eq!(fold_route(method, &path).name, name);
        }
        let wordy = "/abcdefghijklmnopqrstuvwxyz".repeat(7);
        let label = fold_route("POST", &wordy).name;
        assert!(label.len() == LABEL_BYTES && label.starts_with("POST /abc"), "{label}");
        assert_ne!(fold_route("POST", &format!("{wordy}/b")).name, label);
    }

    proptest! {
        #[test]
        fn any_path_folds_to_a_bounded_route(path in "\\PC{0,400}") {
            prop_assert!(fold_route("GET", &path).name.len() <= LABEL_BYTES);
        }
    }
}
