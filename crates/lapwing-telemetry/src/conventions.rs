//! What OpenTelemetry's semantic conventions call a route: an HTTP route, a method of gRPC, an operation of a generative model.

use lapwing_ledger::{Ledger, Unit};

/// Method and path of a route's name, `POST /v1/models/{model}`. A name that is no route (`other`) has the method `_OTHER`.
pub(crate) fn http_route(route: &str) -> (&str, &str) {
    route.split_once(' ').unwrap_or(("_OTHER", route))
}

/// `package.Service/Method` of a route that looks like a method of gRPC: a ledger does not keep the content type. A service has a
/// package and begins with a capital letter.
pub(crate) fn rpc_method(route: &str) -> Option<&str> {
    let name = route.strip_prefix("POST /")?;
    let (service, method) = name.split_once('/')?;
    let begins_as_name = |name: &str| name.starts_with(|first: char| first.is_ascii_uppercase());
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let (package, service) = service.rsplit_once('.')?;
    let is_package = !package.is_empty() && package.split('.').all(is_name);
    (is_package && begins_as_name(service) && is_name(service) && begins_as_name(method) && is_name(method)).then_some(name)
}

/// The operation of a generative model or an embedder: by the path of the protocols that name it, else a completion where tokens
/// were written.
pub(crate) fn gen_ai_operation(path: &str, ledger: &Ledger) -> Option<&'static str> {
    let last = path.rsplit('/').find(|segment| !segment.is_empty()).unwrap_or_default();
    match last {
        "completions" if path.contains("/chat/") => Some("chat"),
        "chat" | "messages" => Some("chat"),
        "embeddings" | "embed" | "embed_all" | "embed_sparse" => Some("embeddings"),
        "completions" | "completion" | "generate" | "generate_stream" => Some("text_completion"),
        _ if ledger.generation.is_some() || ledger.work.get(Unit::OutputToken).is_some() => Some("text_completion"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{Basis, Stamp};

    #[test]
    fn a_method_of_grpc_is_told_from_a_path() {
        assert_eq!(
            rpc_method("POST /inference.GRPCInferenceService/ModelInfer"),
            Some("inference.GRPCInferenceService/ModelInfer")
        );
        for other in [
            "POST /v1.0/Predict",
            "POST /predict",
            "GET /inference.GRPCInferenceService/ModelInfer",
            "POST /a.B/C/D",
            "POST /a.B/{id}",
            "POST /.B/C",
            "other",
        ] {
            assert_eq!(rpc_method(other), None, "{other}");
        }
        assert_eq!(http_route("POST /a b"), ("POST", "/a b"));
        assert_eq!(http_route("other"), ("_OTHER", "other"));
    }

    #[test]
    fn operations_have_the_names_of_the_conventions() {
        let mut ledger = Ledger::open(Stamp::default(), 0);
        let of = |path, ledger: &Ledger| gen_ai_operation(path, ledger);
        assert_eq!(of("/v1/chat/completions", &ledger), Some("chat"));
        assert_eq!(of("/v1/completions", &ledger), Some("text_completion"));
        assert_eq!(of("/v1/embeddings", &ledger), Some("embeddings"));
        assert_eq!(of("/v2/models/{model}/infer", &ledger), None);
        ledger.work.set(Unit::OutputToken, 3, Basis::Reported);
        assert_eq!(of("/v2/models/{model}/infer", &ledger), Some("text_completion"));
    }
}
