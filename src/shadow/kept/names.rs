//! The one home of what is known by its name: headers that a copy keeps, and members and parameters that are secrets.

/// Headers of a request that its copies and its record keep. They say how the body is to be read, what answer is wanted, and what is
/// asked of which model. Everything else stays with the upstream.
pub(super) const KEPT_HEADERS: &[&str] = &[
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
pub(super) const NEVER_KEPT: &[&str] = &[
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

/// Where a name is that of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A parameter of a query.
    Query,
    /// A member of the outermost object of a body, or a field of a form.
    Top,
    /// A member of an object further inside.
    Inside,
}

/// Names whose texts and numbers are secrets wherever they stand, without `-`, `_` and `.`, in lower case.
const EVERYWHERE: &[&str] = &[
    "accesskey",
    "accesskeyid",
    "accesstoken",
    "apikey",
    "apitoken",
    "authenticitytoken",
    "authorization",
    "authtoken",
    "bearertoken",
    "cardnumber",
    "clientsecret",
    "cookie",
    "creditcard",
    "credential",
    "credentials",
    "csrf",
    "csrfmiddlewaretoken",
    "csrftoken",
    "cvc",
    "cvv",
    "hftoken",
    "idtoken",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "proxyauthorization",
    "pwd",
    "refreshtoken",
    "requestverificationtoken",
    "secret",
    "secretaccesskey",
    "secretkey",
    "securitytoken",
    "sessionid",
    "sessiontoken",
    "setcookie",
    "subscriptionkey",
    "xapikey",
    "xcsrftoken",
    "xsrftoken",
];
/// Further names at the top of a body. Inside, as in the tokens of an answer, they are everyday words.
const AT_THE_TOP: &[&str] = &["auth", "jwt", "otp", "pin", "session", "sid", "token"];
/// Further parameters of queries.
const IN_QUERIES: &[&str] = &["assertion", "code", "pass", "samlresponse", "sig", "ticket"];
/// What the name of a secret parameter of a query has in it.
const PARTS_IN_QUERIES: &[&str] =
    &["apikey", "authorization", "credential", "csrf", "jwt", "passw", "secret", "session", "signature", "xsrf"];

/// Whether a member of a document has the name of a secret; `is_top`: of the outermost object.
pub(in crate::shadow) fn names_secret(member: &str, is_top: bool) -> bool {
    is_secret(member, if is_top { Place::Top } else { Place::Inside })
}

/// Whether this is the name of a secret by the rules above.
pub(super) fn is_secret(name: &str, place: Place) -> bool {
    let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_' | '.' | '$')).collect::<String>().to_ascii_lowercase();
    let plain = plain.as_str();
    let is_everywhere = EVERYWHERE.contains(&plain);
    match place {
        Place::Inside => is_everywhere,
        Place::Top => is_everywhere || AT_THE_TOP.contains(&plain),
        // nothing that a model reads is in a query, so that more may be taken for a secret
        Place::Query => {
            is_everywhere
                || AT_THE_TOP.contains(&plain)
                || IN_QUERIES.contains(&plain)
                || plain.ends_with("key")
                || plain.ends_with("token")
                || PARTS_IN_QUERIES.iter().any(|part| plain.contains(part))
        }
    }
}
