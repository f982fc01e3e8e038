//! REST other than inference: metadata of the server and its models, readiness, the repository index, metrics.

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::body::{coding, collect, unpack};
use crate::error::{self, RequestError};
use crate::metrics::OPENMETRICS;
use crate::state::ServerState;
use lapwing_model::service::About;
use lapwing_onnx::tensor::TensorSpec;

/// The server's name in its metadata.
pub(crate) const NAME: &str = "lapwing";
/// The protocol extensions that the server supports.
pub(crate) const EXTENSIONS: &[&str] = &["binary_tensor_data", "model_repository", "parameters"];
/// The platform in a model's metadata: the engine and the model format.
pub(crate) const PLATFORM: &str = "lapwing_onnx";

/// A model, and maybe a version, in a path.
#[derive(Debug, Deserialize)]
pub(crate) struct ModelPath {
    pub(crate) model: String,
    pub(crate) version: Option<String>,
}

/// A body of JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!({"error": error.to_string()}).to_string().into_bytes()),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The error response.
pub(crate) fn error_response(error: &RequestError) -> Response {
    let status = error.status();
    let mut response = json(status, &json!({"error": error.message()}));
    if error.is_momentary() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(error::RETRY_AFTER));
    }
    response
}

const fn ready(is_ready: bool) -> StatusCode {
    if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

pub(crate) async fn server() -> Response {
    json(StatusCode::OK, &json!({"name": NAME, "version": env!("CARGO_PKG_VERSION"), "extensions": EXTENSIONS}))
}

pub(crate) async fn live() -> Response {
    json(StatusCode::OK, &json!({"live": true}))
}

pub(crate) async fn server_ready(State(shared): State<ServerState>) -> Response {
    let is_ready = shared.catalogue.is_ready();
    json(ready(is_ready), &json!({"ready": is_ready}))
}

pub(crate) async fn model_ready(State(shared): State<ServerState>, Path(asks): Path<ModelPath>) -> Response {
    match shared.catalogue.find(&asks.model, asks.version.as_deref()) {
        Ok(entry) => {
            let is_ready = entry.model.is_ready();
            json(ready(is_ready), &json!({"name": asks.model, "ready": is_ready}))
        }
        Err(error) => error_response(&error),
    }
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    versions: Vec<String>,
    platform: &'static str,
    inputs: Vec<PortMetadata<'a>>,
    outputs: Vec<PortMetadata<'a>>,
    parameters: Parameters<'a>,
}

#[derive(Serialize)]
struct PortMetadata<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: Vec<i64>,
}

#[derive(Serialize)]
struct Parameters<'a> {
    version: &'a str,
    executor: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
    device: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_name: Option<&'a str>,
    precision: &'a str,
    /// `no_driver: …`
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'a str>,
}

/// The lengths of the axes, as in the protocol: -1 if a request chooses the length.
pub(crate) fn axes(port: &TensorSpec) -> Vec<i64> {
    port.shape.iter().map(|axis| axis.and_then(|length| i64::try_from(length).ok()).unwrap_or(-1)).collect()
}

fn ports(ports: &[TensorSpec]) -> Vec<PortMetadata<'_>> {
    ports.iter().map(|port| PortMetadata { name: &port.name, datatype: port.datatype.name(), shape: axes(port) }).collect()
}

pub(crate) async fn model(State(shared): State<ServerState>, Path(asks): Path<ModelPath>) -> Response {
    let entry = match shared.catalogue.find(&asks.model, asks.version.as_deref()) {
        Ok(entry) => entry,
        Err(error) => return error_response(&error),
    };
    let (about, placement): (&About, _) = (entry.model.about(), entry.model.placement());
    let metadata = Metadata {
        name: &about.name,
        versions: shared.catalogue.versions(&about.name),
        platform: PLATFORM,
        inputs: ports(&about.inputs),
        outputs: ports(&about.outputs),
        parameters: Parameters {
            version: &about.version,
            executor: about.executor.name(),
            refused: about.unsupported.as_deref(),
            device: &placement.device,
            device_name: placement.device_name.as_deref(),
            precision: placement.precision,
            fallback: placement.fallback.as_ref().map(ToString::to_string),
            fault: placement.fault.as_deref(),
        },
    };
    json(StatusCode::OK, &metadata)
}

#[derive(Debug, Default, Deserialize)]
struct IndexRequest {
    ready: Option<bool>,
}

pub(crate) async fn index(State(shared): State<ServerState>, request: Request) -> Response {
    match index_of(&shared, request).await {
        Ok(response) => response,
        Err(error) => error_response(&error),
    }
}

async fn index_of(shared: &ServerState, request: Request) -> Result<Response, RequestError> {
    let (head, body) = request.into_parts();
    let packing = coding(&head.headers)?;
    let body = collect(body, shared.limits.max_body_bytes(), &shared.limits, &shared.bodies).await?;
    let body: Bytes = unpack(body, packing, &shared.limits)?;
    let asked: IndexRequest = if body.trim_ascii().is_empty() {
        IndexRequest::default()
    } else {
        serde_json::from_slice(&body).map_err(|error| RequestError::Input(error.to_string()))?
    };
    let models = shared
        .catalogue
        .index(asked.ready.unwrap_or_default())
        .map(|(about, state, reason)| json!({"name": about.name, "version": about.version, "state": state, "reason": reason}));
    Ok(json(StatusCode::OK, &models.collect::<Vec<_>>()))
}

pub(crate) async fn metrics(State(shared): State<ServerState>) -> Response {
    for entry in shared.catalogue.entries() {
        entry.tallies.refresh(&*entry.model);
    }
    shared.catalogue.metrics.set_body_bytes(shared.bodies.used());
    match shared.catalogue.metrics.text() {
        Ok(text) => {
            let mut response = Response::new(Body::from(text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPENMETRICS));
            response
        }
        Err(error) => json(StatusCode::INTERNAL_SERVER_ERROR, &json!({"error": error.to_string()})),
    }
}

/// `/livez` and `/readyz`, as the admin address has them.
pub(crate) async fn livez() -> &'static str {
    "alive\n"
}

pub(crate) async fn readyz(State(shared): State<ServerState>) -> (StatusCode, String) {
    match shared.catalogue.readiness() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(waiting) => (ready(false), waiting + "\n"),
    }
}
