//! The route of a request: its path with identifiers folded, by what the model servers' own paths say.

use super::detect::torch_serve;
use lapwing_ledger::{FoldedRoute, fold_path};

/// The route of a request by its method and path (without query).
#[must_use]
pub fn fold_route<'a>(method: &str, path: &'a str) -> FoldedRoute<'a> {
    fold_path(method, path, torch_serve(path).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::LABEL_BYTES;

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
}
