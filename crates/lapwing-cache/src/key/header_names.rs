//! Which fields of a request's head may change its answer, beside those that the configuration names.

/// What a client sends, what it wants to be sent, and from which model, where servers and gateways look for that in the head. Sorted.
const NEGOTIATED: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "azureml-model-deployment",
    "content-encoding",
    "content-type",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-message-type",
    "mm-model-id",
    "mm-vmodel-id",
    "openai-beta",
    "seldon-internal-model",
    "seldon-model",
    "serve_multiplexed_model_id",
    "x-amzn-sagemaker-custom-attributes",
    "x-amzn-sagemaker-inference-component",
    "x-amzn-sagemaker-target-model",
    "x-amzn-sagemaker-target-variant",
];

/// Who asks: what clients present, and what gateways in front say of them. Sorted.
const CREDENTIALS: &[&str] = &[
    "api-key",
    "apikey",
    "authorization",
    "cookie",
    "dpop",
    "openai-organization",
    "openai-project",
    "proxy-authorization",
    "remote-user",
    "x-access-token",
    "x-amz-security-token",
    "x-api-key",
    "x-auth-request-access-token",
    "x-auth-request-email",
    "x-auth-request-groups",
    "x-auth-request-user",
    "x-auth-token",
    "x-consumer-custom-id",
    "x-consumer-username",
    "x-forwarded-access-token",
    "x-forwarded-client-cert",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-user",
    "x-goog-api-key",
    "x-goog-authenticated-user-email",
    "x-goog-iap-jwt-assertion",
    "x-ms-client-principal",
    "x-remote-user",
    "x-tenant-id",
    "x-user-id",
];

/// How many bytes of a body are JSON: with another number, the same bytes are another request.
pub(crate) const JSON_BYTES: &str = "inference-header-content-length";

/// Whether a field, by its name in lower case, describes what is sent and wanted, and from whom.
pub(crate) fn is_negotiated(name: &str) -> bool {
    NEGOTIATED.binary_search(&name).is_ok()
}

/// Whether a field, by its name in lower case, says who asks.
pub(crate) fn is_credential(name: &str) -> bool {
    CREDENTIALS.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn the_names_are_found() {
        for names in [NEGOTIATED, CREDENTIALS] {
            assert!(names.is_sorted());
            assert!(names.iter().all(|name| HeaderName::from_static(name).as_str() == *name));
        }
        assert!(is_negotiated("accept") && is_negotiated("mm-model-id") && !is_negotiated("x-request-id"));
        assert!(is_credential("authorization") && is_credential("x-user-id") && !is_credential("accept"));
    }
}
