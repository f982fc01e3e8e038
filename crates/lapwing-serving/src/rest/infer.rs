//! `POST …/infer`: decodes the body, calls the model, encodes the answer.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::message::{DecodedRequest, EncodedResponse, OutputFormat, decode_request, encode_response};
use super::pages::{ModelPath, error_response};
use crate::body::{ReceivedBody, coding, collect, unpack};
use crate::error::RequestError;
use crate::in_flight::InFlightInference;
use crate::metrics::{EXECUTOR, SERVER_TIMING, StageTimes, server_timing};
use crate::state::ServerState;
use lapwing_compression::BodyCoding;
use lapwing_ledger::Stamp;
use lapwing_model::service::Answer;

/// Bytes of JSON before the binary data (Triton's extension), both ways.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
/// Larger requests and answers are decoded and encoded on a blocking thread, so that they do not delay others.
const LARGE: usize = 256 << 10;

pub(crate) async fn infer(State(shared): State<ServerState>, Path(asks): Path<ModelPath>, request: Request) -> Response {
    let arrival = Stamp::now();
    let entry = match shared.catalogue.find(&asks.model, asks.version.as_deref()) {
        Ok(entry) => entry,
        Err(error) => return error_response(&error),
    };
    let executor = HeaderValue::from_static(entry.model.about().executor.name());
    let inference = match InFlightInference::begin(entry, arrival, &shared.slots, &shared.limits) {
        Ok(inference) => inference,
        Err(error) => {
            shared.catalogue.metrics.refused(&error);
            return named(error_response(&error), executor);
        }
    };
    let response = match answer(&shared, &inference, request).await {
        Ok((answer, spent, written)) => {
            inference.answered(&spent, &answer);
            reply(written, &spent)
        }
        Err(error) => {
            inference.failed(&error);
            shared.catalogue.metrics.refused(&error);
            error_response(&error)
        }
    };
    named(response, executor)
}

fn named(mut response: Response, executor: HeaderValue) -> Response {
    response.headers_mut().insert(EXECUTOR, executor);
    response
}

async fn answer(
    shared: &ServerState,
    inference: &InFlightInference,
    request: Request,
) -> Result<(Arc<Answer>, StageTimes, EncodedResponse), RequestError> {
    let (head, body) = request.into_parts();
    let (packing, json_length) = (coding(&head.headers)?, json_length(&head.headers)?);
    let body = collect(body, shared.limits.max_body_bytes(), &shared.limits, &shared.bodies).await?;
    let came = Stamp::now();
    let DecodedRequest { id, asked, form } = decode(shared, inference, body, packing, json_length).await?;
    let decode_ns = came.elapsed();
    let answer = Arc::new(inference.call(asked, &shared.limits).await?);
    let done = Stamp::now();
    let written = encode(inference, id, Arc::clone(&answer), form).await?;
    let spent = StageTimes::of(&answer, decode_ns, done.elapsed());
    Ok((answer, spent, written))
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, RequestError> {
    let Some(value) = headers.get(JSON_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| RequestError::Input(format!("{JSON_LENGTH}: {value:?} is no number of bytes")))
}

async fn decode(
    shared: &ServerState,
    inference: &InFlightInference,
    body: ReceivedBody,
    packing: BodyCoding,
    json_length: Option<usize>,
) -> Result<DecodedRequest, RequestError> {
    let size = json_length.unwrap_or(body.bytes.len());
    let (limits, model, received) = (shared.limits, inference.model(), body.bytes.len());
    let work = move || decode_request(&unpack(body, packing, &limits)?, json_length, received, model.about());
    offload_if(size > LARGE || !packing.is_plain(), work).await
}

async fn encode(
    inference: &InFlightInference,
    id: Option<String>,
    answer: Arc<Answer>,
    form: OutputFormat,
) -> Result<EncodedResponse, RequestError> {
    let size: usize = answer.outputs.iter().map(|tensor| tensor.data.len()).sum();
    let model = inference.model();
    offload_if(size > LARGE, move || encode_response(model.about(), id.as_deref(), &answer, &form)).await
}

/// Runs `work` here, or on a blocking thread if it takes long.
async fn offload_if<T: Send + 'static>(
    is_long: bool,
    work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    if !is_long {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RequestError::Output(format!("the request could not be worked on: {error}"))))
}

fn reply(written: EncodedResponse, spent: &StageTimes) -> Response {
    let mut response = Response::new(Body::from(written.body));
    let headers = response.headers_mut();
    let kind = if written.json_length.is_some() { "application/octet-stream" } else { "application/json" };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(length) = written.json_length {
        headers.insert(JSON_LENGTH, length.into());
    }
    if let Some(timing) = server_timing(spent) {
        headers.insert(SERVER_TIMING, timing);
    }
    response
}
