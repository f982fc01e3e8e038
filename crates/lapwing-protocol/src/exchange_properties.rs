//! Properties of every `ExchangeReader` on any bytes, shared by the property tests and the fuzz targets: reading ends without a
//! panic, and pieces give the same result as the whole. It collects results, so it is for tests only.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};

use super::{ErrorPlace, ExchangeReader, Glance, Protocols};
use lapwing_ledger::{Ledger, Outcome, Stamp, Unit};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
const GRPC: &str = "application/grpc";
const FORM: &str = "multipart/form-data; boundary=b";
const CSV: &str = "text/csv";

/// Exchanges of every protocol: path, format of the request, format of the response.
pub const EXCHANGES: &[(&str, &str, &str)] = &[
    ("/v2/models/m/infer", JSON, JSON),
    ("/inference.GRPCInferenceService/ModelInfer", GRPC, GRPC),
    ("/inference.GRPCInferenceService/ModelStreamInfer", GRPC, GRPC),
    ("/v2/models/m/generate_stream", JSON, EVENTS),
    ("/v1/chat/completions", JSON, EVENTS),
    ("/v1/chat/completions", JSON, JSON),
    ("/v1/completions", JSON, EVENTS),
    ("/v1/embeddings", JSON, JSON),
    ("/v1/responses", JSON, EVENTS),
    ("/v1/audio/transcriptions", FORM, EVENTS),
    ("/v1/audio/speech", JSON, EVENTS),
    ("/v1/images/edits", FORM, JSON),
    ("/v1/messages", JSON, EVENTS),
    ("/v2/chat", JSON, EVENTS),
    ("/v2/embed", JSON, JSON),
    ("/v1/score", JSON, JSON),
    ("/v1/classify", JSON, JSON),
    ("/pooling", JSON, JSON),
    ("/tokenize", JSON, JSON),
    ("/detokenize", JSON, JSON),
    ("/inference/v1/generate", JSON, EVENTS),
    ("/encode", JSON, JSON),
    ("/invocations", JSON, JSON),
    ("/invocations", CSV, JSON),
    ("/invocations", LINES, EVENTS),
    ("/vertex", JSON, JSON),
    ("/v1/timeseries/forecast", JSON, JSON),
    ("/embed", JSON, JSON),
    ("/predict", JSON, JSON),
    ("/rerank", JSON, JSON),
    ("/similarity", JSON, JSON),
    ("/tei.v1.Embed/EmbedStream", GRPC, GRPC),
    ("/tei.v1.Predict/PredictPair", GRPC, GRPC),
    ("/tei.v1.Rerank/Rerank", GRPC, GRPC),
    ("/generate", JSON, EVENTS),
    ("/", JSON, JSON),
    ("/infill", JSON, EVENTS),
    ("/embedding", JSON, JSON),
    ("/api/generate", JSON, LINES),
    ("/api/chat", JSON, LINES),
    ("/api/embed", JSON, JSON),
    ("/predictions/m", JSON, JSON),
    ("/v1/models/m:predict", JSON, JSON),
    ("/v1/models/m:classify", JSON, JSON),
    ("/tensorflow.serving.PredictionService/Predict", GRPC, GRPC),
];

/// Whether reading an exchange of the protocol at `which` (modulo their number) gives the same result whole, byte by byte, and in
/// pieces of `length`.
#[must_use]
pub fn same_in_pieces(protocols: &Protocols, which: usize, request: &[u8], response: &[u8], length: usize) -> bool {
    let exchange = EXCHANGES[which % EXCHANGES.len()];
    let whole = seen(protocols, exchange, request, response, usize::MAX);
    [1, length.max(1)].into_iter().all(|length| seen(protocols, exchange, request, response, length) == whole)
}

/// Everything that the ledger records of an exchange, as text.
fn seen(
    protocols: &Protocols,
    exchange: (&str, &'static str, &'static str),
    request: &[u8],
    response: &[u8],
    length: usize,
) -> String {
    let (path, asked, answered) = exchange;
    let head = |kind: &'static str| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let spoken = protocols.detect(&Method::POST, path);
    let Some(mut reader) = protocols.open(&spoken, &head(asked)) else { return String::new() };
    request.chunks(length).for_each(|piece| reader.request(piece));
    reader.response_head(200, &head(answered));
    let mut glance = glance(&mut reader, &head(answered));
    response.chunks(length).for_each(|piece| read_response(&mut reader, &mut glance, piece, 7));
    let mut ledger = Ledger::open(Stamp::now(), 0);
    ledger.outcome = Outcome::Ok;
    (ledger.request_bytes, ledger.response_bytes) = (request.len() as u64, response.len() as u64);
    let model = reader.close(&mut ledger).map(str::to_owned);
    let work: Vec<_> = Unit::ALL.into_iter().map(|unit| ledger.work.get(unit)).collect();
    format!("{model:?} {:?} {work:?} {:?} {:?} {:?}", ledger.server, ledger.generation, ledger.reports, ledger.outcome)
}

/// The search for errors in an answer whose head `reader` has read, as the proxy does it.
pub(crate) fn glance(reader: &mut ExchangeReader, headers: &HeaderMap) -> Glance {
    let content_type = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    match ErrorPlace::of(headers, content_type) {
        ErrorPlace::Document if reader.reads_nothing() => return Glance::on(),
        ErrorPlace::Stream => reader.read_stream_errors(headers),
        _ => {}
    }
    Glance::Off
}

/// Passes a piece of an answer to its readers, as the proxy does.
pub(crate) fn read_response(reader: &mut ExchangeReader, glance: &mut Glance, piece: &[u8], at_ns: u64) {
    if let Some(before) = glance.feed(piece) {
        reader.read_document_errors();
        reader.response(&before, at_ns);
    }
    reader.response(piece, at_ns);
}

/// Interprets a fuzz target's bytes: the protocol, the length of pieces, the request's share of the rest, the request, the
/// response.
#[must_use]
pub fn fuzz(protocols: &Protocols, bytes: &[u8]) -> bool {
    let [which, length, share, rest @ ..] = bytes else { return true };
    let (request, response) = rest.split_at(rest.len() * usize::from(*share) / 255);
    same_in_pieces(protocols, usize::from(*which), request, response, usize::from(*length) + 2)
}
