//! `POST …/infer`: from the body to the answer.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::body::{Packing, collect, unpack};
use super::pages::{Asks, fault};
use super::request::{Form, Read, read};
use super::response::{Written, write};
use crate::ledger::Stamp;
use crate::serving::flight::Flight;
use crate::serving::metrics::Spent;
use crate::serving::refusal::Refusal;
use crate::serving::router::Shared;
use crate::serving::timing::{EXECUTOR, SERVER_TIMING, server_timing};
use lapwing_engine::service::Answer;

/// Bytes of JSON before the binary data (Triton's extension), both ways.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
/// What is larger is read or written on a thread where that may take its time.
const LARGE: usize = 256 << 10;

pub(super) async fn infer(State(shared): State<Shared>, Path(asks): Path<Asks>, request: Request) -> Response {
    let arrival = Stamp::now();
    let entry = match shared.catalogue.find(&asks.model, asks.version.as_deref()) {
        Ok(entry) => entry,
        Err(refusal) => return fault(&refusal),
    };
    let executor = HeaderValue::from_static(entry.model.about().executor);
    let flight = match Flight::begin(entry, arrival, &shared.room, &shared.limits) {
        Ok(flight) => flight,
        Err(refusal) => return named(fault(&refusal), executor),
    };
    let response = match answer(&shared, &flight, request).await {
        Ok((answer, spent, written)) => {
            flight.answered(&spent, &answer);
            reply(written, &spent)
        }
        Err(refusal) => {
            flight.refused(&refusal);
            fault(&refusal)
        }
    };
    named(response, executor)
}

fn named(mut response: Response, executor: HeaderValue) -> Response {
    response.headers_mut().insert(EXECUTOR, executor);
    response
}

async fn answer(shared: &Shared, flight: &Flight, request: Request) -> Result<(Arc<Answer>, Spent, Written), Refusal> {
    let (head, body) = request.into_parts();
    let (packing, json_length) = (Packing::of(&head.headers)?, json_length(&head.headers)?);
    let body = collect(body, &shared.limits).await?;
    let came = Stamp::now();
    let Read { id, asked, form } = decode(shared, flight, body, packing, json_length).await?;
    let decode_ns = came.elapsed();
    let answer = Arc::new(flight.call(asked, &shared.limits).await?);
    let done = Stamp::now();
    let written = encode(flight, id, Arc::clone(&answer), form).await?;
    let spent = Spent::of(&answer, decode_ns, done.elapsed());
    Ok((answer, spent, written))
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
    let Some(value) = headers.get(JSON_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| Refusal::Input(format!("{JSON_LENGTH}: {value:?} is no number of bytes")))
}

async fn decode(
    shared: &Shared,
    flight: &Flight,
    body: Bytes,
    packing: Packing,
    json_length: Option<usize>,
) -> Result<Read, Refusal> {
    let size = json_length.unwrap_or(body.len());
    let (limits, model) = (shared.limits, flight.model());
    let work = move || read(&unpack(body, packing, &limits)?, json_length, model.about());
    off_if(size > LARGE || packing != Packing::Plain, work).await
}

async fn encode(flight: &Flight, id: Option<String>, answer: Arc<Answer>, form: Form) -> Result<Written, Refusal> {
    let size: usize = answer.outputs.iter().map(|tensor| tensor.data.len()).sum();
    let model = flight.model();
    off_if(size > LARGE, move || write(model.about(), id.as_deref(), &answer, &form)).await
}

/// Does `work` here, or on a thread where it holds nobody up.
async fn off_if<T: Send + 'static>(
    is_long: bool,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    if !is_long {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Refusal::Output(format!("the request could not be worked on: {error}"))))
}

fn reply(written: Written, spent: &Spent) -> Response {
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
