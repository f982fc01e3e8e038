//! The headers that a copy and its record keep, and those that they never do, by name; and the marks of a copy.

use http::HeaderName;

/// The header that every copy carries, with the value 1. A request that has it is not copied again.
pub const SHADOW_FIELD: HeaderName = HeaderName::from_static("x-lapwing-shadow");
/// Carries the pair's number from the thread that sends copies to its own stack, which removes it.
pub(crate) const PAIR_FIELD: HeaderName = HeaderName::from_static("x-lapwing-pair");

/// Headers of a request that its copies and its record keep. They say how the body is to be read, what answer is wanted, and what is
/// asked of which model. Everything else stays with the upstream.
pub(crate) const KEPT_HEADERS: &[&str] = &[
    // the body, and the answer that is wanted
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    // where the request goes: a gateway or a server of many models may choose by it
    "host",
    "user-agent",
    // gRPC, gRPC-Web and Connect; `te` only as `trailers`
    "te",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-message-type",
    "grpc-timeout",
    "x-grpc-web",
    "x-user-agent",
    "connect-accept-encoding",
    "connect-content-encoding",
    "connect-protocol-version",
    "connect-timeout-ms",
    // the Open Inference Protocol, Triton's load report, CloudEvents as KServe reads them
    "inference-header-content-length",
    "endpoint-load-metrics-format",
    "ce-id",
    "ce-source",
    "ce-specversion",
    "ce-type",
    // which model is asked, where the path does not say so: Seldon, ModelMesh, SageMaker
    "seldon-model",
    "mm-model-id",
    "mm-vmodel-id",
    "x-amzn-sagemaker-target-model",
    "x-amzn-sagemaker-target-variant",
    // versions of the APIs of Anthropic and OpenAI
    "anthropic-beta",
    "anthropic-version",
    "openai-beta",
];

/// Headers that are about the original's connection or its trace. A copy has its own, so nobody can keep them.
pub(crate) const NEVER_KEPT: &[&str] = &[
    "connection",
    "expect",
    "keep-alive",
    "proxy-connection",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
    "x-lapwing-pair",
    "x-lapwing-shadow",
];

/// Whether nobody can keep this header, because a copy has its own.
pub(crate) fn is_never_kept(name: &str) -> bool {
    NEVER_KEPT.iter().any(|never| never.eq_ignore_ascii_case(name))
}
