//! Reviews of a mutating admission webhook (`admission.k8s.io/v1`): a pod that is about to be made, and the patch that puts Lapwing into it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::manifest::Edit;
use crate::options::{InjectOptions, Way};
use crate::plan::plan;
use crate::pod::{Object, text};
use crate::record::{INJECTED, Record};
use crate::sidecar::SIDECAR;

/// The annotation by which a pod asks for Lapwing (`"true"`), or declines (`"false"`).
pub const INJECT: &str = "lapwing.dev/inject";
/// The most characters of an audit annotation's value or of a warning; the API server shows less than 256 of a warning.
const MAX_SAID: usize = 250;

/// What became of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewResult {
    /// The answer has a patch.
    Injected,
    /// Lapwing is in the pod already.
    Unchanged,
    /// Nobody asked for it.
    Left,
    /// It cannot be done; the pod is made without it, with a warning.
    Refused,
}

impl ReviewResult {
    /// Every result.
    pub const ALL: [Self; 4] = [Self::Injected, Self::Unchanged, Self::Left, Self::Refused];

    /// Its name in metrics and audit annotations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Unchanged => "unchanged",
            Self::Left => "left",
            Self::Refused => "refused",
        }
    }
}

/// Why a review cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The body is no JSON, or not of this form.
    #[error("it is no AdmissionReview: {0}")]
    NotReview(String),
    /// Another version, or no request.
    #[error("{field} is {value}, not {wanted}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What it must hold.
        wanted: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

#[derive(Deserialize)]
struct Request {
    uid: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    object: Value,
}

/// Answers a review. `by_default`: whether pods that say nothing are meant, as in a namespace that asks for Lapwing.
///
/// # Errors
///
/// If `body` is no review of version v1. A pod into which nothing can be injected is no error: it is admitted as it is.
pub fn review(body: &[u8], by_default: bool, options: &InjectOptions) -> Result<(Value, ReviewResult), ReviewError> {
    let review: Review = serde_json::from_slice(body).map_err(|error| ReviewError::NotReview(error.to_string()))?;
    let field = |field, value: &str, wanted| ReviewError::Field {
        field,
        value: if value.is_empty() { "missing".to_owned() } else { value.to_owned() },
        wanted,
    };
    if review.api_version != "admission.k8s.io/v1" {
        return Err(field("apiVersion", &review.api_version, "admission.k8s.io/v1"));
    }
    if review.kind != "AdmissionReview" {
        return Err(field("kind", &review.kind, "AdmissionReview"));
    }
    let request = review.request.ok_or_else(|| field("request", "", "an object"))?;
    let (edits, said, result) = decide(&request, by_default, options);
    let mut response = json!({
        "uid": request.uid,
        "allowed": true,
        "auditAnnotations": { "result": result.name(), "reason": cut(&said.join("; ")) },
    });
    if result == ReviewResult::Refused {
        response["warnings"] = said.iter().map(|line| cut(&format!("lapwing is not injected: {line}"))).collect();
    }
    if !edits.is_empty() {
        let patch = Value::Array(edits.iter().map(Edit::operation).collect());
        response["patchType"] = "JSONPatch".into();
        response["patch"] = STANDARD.encode(patch.to_string()).into();
    }
    Ok((json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }), result))
}

/// The changes of a pod, what is to be said of them, and the result.
fn decide(request: &Request, by_default: bool, options: &InjectOptions) -> (Vec<Edit>, Vec<String>, ReviewResult) {
    let left = |why: &str| (Vec::new(), vec![why.to_owned()], ReviewResult::Left);
    let pod = &request.object;
    if text(pod, &["kind"]) != Some("Pod") || request.operation != "CREATE" {
        return left("it is not about a pod that is made");
    }
    let annotations = pod.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let said = |key: &str| annotations.and_then(|annotations| text(annotations, &[key]));
    match said(INJECT) {
        Some("true") => {}
        Some("false") => return left("the pod declines it"),
        None if by_default => {}
        None => return left("the pod does not ask for it"),
        Some(other) => {
            return (
                Vec::new(),
                vec![format!("its annotation {INJECT} is {other:?}, neither \"true\" nor \"false\"")],
                ReviewResult::Refused,
            );
        }
    }
    let object = Object { document: 0, path: Vec::new(), value: pod };
    let has_sidecar = object.pod().is_some_and(|pod| pod.running().any(|one| text(one, &["name"]) == Some(SIDECAR)));
    if has_sidecar && Record::of(annotations).is_some() {
        return (
            Vec::new(),
            vec![format!("it has the container {SIDECAR} and the annotation {INJECTED}")],
            ReviewResult::Unchanged,
        );
    }
    let planned = asked(options, said).and_then(|options| plan(&object, std::slice::from_ref(&object), &options));
    match planned {
        Ok(plan) => (plan.edits.into_iter().map(|(_, edit)| edit).collect(), plan.lines, ReviewResult::Injected),
        Err(reason) => (Vec::new(), vec![reason], ReviewResult::Refused),
    }
}

/// The options with what a pod's annotations say, by the names of the command line.
fn asked<'a>(options: &InjectOptions, said: impl Fn(&str) -> Option<&'a str>) -> Result<InjectOptions, String> {
    let mut options = options.clone();
    let fault = |name: &str, reason: String| format!("its annotation {name}: {reason}");
    if let Some(container) = said("lapwing.dev/container") {
        options.container = Some(container.to_owned());
    }
    let name = "lapwing.dev/port";
    if let Some(port) = said(name) {
        let number = port.parse().ok().filter(|number| *number > 0);
        options.port = Some(number.ok_or_else(|| fault(name, format!("{port:?} is no port from 1 to 65535")))?);
    }
    let name = "lapwing.dev/way";
    if let Some(way) = said(name) {
        options.way = Some(way.parse::<Way>().map_err(|error| fault(name, error))?);
    }
    let name = "lapwing.dev/config-map";
    if let Some(config_map) = said(name) {
        options.config_map = Some(config_map.parse().map_err(|error| fault(name, error))?);
    }
    let name = "lapwing.dev/memory";
    if let Some(memory) = said(name) {
        options.memory = memory.parse().map_err(|error| fault(name, error))?;
    }
    for (name, option) in [("lapwing.dev/reporting", &mut options.reporting), ("lapwing.dev/gpu", &mut options.gpu)] {
        if let Some(text) = said(name) {
            *option = text.parse().map_err(|_| fault(name, format!("{text:?} is neither \"true\" nor \"false\"")))?;
        }
    }
    Ok(options)
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_SAID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "ranker-", "annotations": annotations},
               "spec": {"containers": [{"name": "server", "image": "vllm/vllm-openai:v0.9.1"}]}})
    }

    fn reviewed(pod: &Value, by_default: bool) -> (Value, ReviewResult) {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                          "request": {"uid": "u-1", "operation": "CREATE", "object": pod}});
        let (answer, result) = review(body.to_string().as_bytes(), by_default, &InjectOptions::default()).unwrap();
        assert_eq!((&answer["response"]["uid"], &answer["response"]["allowed"]), (&json!("u-1"), &json!(true)));
        (answer["response"].clone(), result)
    }

    #[test]
    fn a_pod_that_asks_gets_a_patch() {
        let (response, result) = reviewed(&pod(&json!({"lapwing.dev/inject": "true"})), false);
        assert_eq!((result, &response["patchType"]), (ReviewResult::Injected, &json!("JSONPatch")));
        let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch[0]["path"], "/spec/initContainers");
        assert_eq!(patch[0]["value"][1]["args"][0], "--upstream=http://127.0.0.1:8000");
        // the API server asks again what other webhooks have changed
        let mut injected = pod(&json!({"lapwing.dev/inject": "true", "lapwing.dev/injected": "{}"}));
        injected["spec"]["initContainers"] = patch[0]["value"].clone();
        assert_eq!(reviewed(&injected, false).1, ReviewResult::Unchanged);
        // the annotation alone is no sidecar
        let template = pod(&json!({"lapwing.dev/inject": "true", "lapwing.dev/injected": "{}"}));
        assert_eq!(reviewed(&template, false).1, ReviewResult::Injected);
        injected["kind"] = "Service".into();
        assert_eq!(reviewed(&injected, true).1, ReviewResult::Left);
    }

    #[test]
    fn who_says_nothing_is_meant_where_the_namespace_asks() {
        for (annotations, by_default, result) in [
            (json!(null), false, ReviewResult::Left),
            (json!(null), true, ReviewResult::Injected),
            (json!({"lapwing.dev/inject": "false"}), true, ReviewResult::Left),
            (json!({"lapwing.dev/inject": "yes"}), true, ReviewResult::Refused),
            (json!({"lapwing.dev/port": "9000"}), true, ReviewResult::Injected),
            (json!({"lapwing.dev/port": "http"}), true, ReviewResult::Refused),
            (json!({"lapwing.dev/way": "detour"}), true, ReviewResult::Refused),
            (json!({"lapwing.dev/memory": "much"}), true, ReviewResult::Refused),
            (json!({"lapwing.dev/config-map": "Settings"}), true, ReviewResult::Refused),
            (json!({"lapwing.dev/gpu": "one"}), true, ReviewResult::Refused),
            (json!({"lapwing.dev/reporting": "1"}), true, ReviewResult::Refused),
            (json!({"lapwing.dev/container": "nobody"}), true, ReviewResult::Refused),
        ] {
            let (response, got) = reviewed(&pod(&annotations), by_default);
            assert_eq!(got, result, "{annotations}: {response}");
            assert_eq!(response.get("warnings").is_some(), result == ReviewResult::Refused);
            assert_eq!(response["auditAnnotations"]["result"], result.name());
        }
    }

    #[test]
    fn a_pod_says_what_its_sidecar_is_like() {
        let said = json!({"lapwing.dev/config-map": "settings", "lapwing.dev/memory": "2Gi", "lapwing.dev/gpu": "true", "lapwing.dev/reporting": "true"});
        let mut asks = pod(&said);
        asks["spec"]["containers"][0]["args"] = json!(["--model=m"]);
        let (response, _) = reviewed(&asks, true);
        let patch = String::from_utf8(STANDARD.decode(response["patch"].as_str().unwrap()).unwrap()).unwrap();
        for wanted in ["settings", "2Gi", "NVIDIA_VISIBLE_DEVICES", "--enable-per-request-metrics"] {
            assert!(patch.contains(wanted), "{wanted}: {patch}");
        }
        let (response, _) = reviewed(&pod(&json!({"lapwing.dev/memory": "much"})), true);
        let warning =
            "lapwing is not injected: its annotation lapwing.dev/memory: much is no amount of memory, as in 192Mi or 2Gi";
        assert_eq!(response["warnings"][0], warning);
    }

    #[test]
    fn what_is_no_review_is_named() {
        for (body, said) in [
            ("", "it is no AdmissionReview: EOF while parsing a value at line 1 column 0"),
            ("{}", "apiVersion is missing, not admission.k8s.io/v1"),
            (
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#,
                "apiVersion is admission.k8s.io/v1beta1, not admission.k8s.io/v1",
            ),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"Pod"}"#, "kind is Pod, not AdmissionReview"),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "request is missing, not an object"),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}"#,
                "it is no AdmissionReview: missing field `uid` at line 1 column 73",
            ),
        ] {
            assert_eq!(review(body.as_bytes(), true, &InjectOptions::default()).unwrap_err().to_string(), said);
        }
    }
}
