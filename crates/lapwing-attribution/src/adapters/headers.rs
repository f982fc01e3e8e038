//! Stage times in header and trailer fields, by the server that sends them.
//!
//! `openai-processing-ms` and similar fields are totals, which claim no stage, so they are not read. BentoML and llama.cpp send
//! no times in fields and are recognised by their `Server` field.

use http::header::SERVER;
use http::{HeaderMap, HeaderName};

use lapwing_ledger::{Ledger, ReportPlace, Server, ServerEvidence, ServerField};
use lapwing_protocol::servers::{ReportedValues, table};

/// TEI and TGI send this field with every answer; no other server does.
pub(crate) const COMPUTE_TYPE: HeaderName = HeaderName::from_static("x-compute-type");
const COMPUTE_TIME: HeaderName = HeaderName::from_static("x-compute-time");
const TOKENIZATION_TIME: HeaderName = HeaderName::from_static("x-tokenization-time");
const VALIDATION_TIME: HeaderName = HeaderName::from_static("x-validation-time");
const TIME_PER_TOKEN: HeaderName = HeaderName::from_static("x-time-per-token");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Records the server that a head names.
pub fn note_server(headers: &HeaderMap, ledger: &mut Ledger) {
    let Some(value) = headers.get(SERVER) else { return };
    let server;
    (ledger.server_field, server) = by_server_field(value.as_bytes());
    if server.is_some() {
        (ledger.server, ledger.server_evidence) = (server, Some(ServerEvidence::Head));
    }
}

/// Records what `headers` report in the ledger: stages, work and the server. Returns the number of fields whose value is not what
/// the server writes there.
pub fn report(headers: &HeaderMap, place: ReportPlace, ledger: &mut Ledger) -> usize {
    if !headers.contains_key(COMPUTE_TYPE) {
        return 0;
    }
    let Some(server) = text_server(headers) else { return 0 };
    if ledger.server.is_none() {
        (ledger.server, ledger.server_evidence) = (Some(server), Some(ServerEvidence::Head));
    }
    let mut values = ReportedValues::default();
    for (name, row) in table::headers(server) {
        if let Some(value) = headers.get(name) {
            values.note_text(row, value.to_str().unwrap_or_default());
        }
    }
    let malformed = values.write(place, ledger);
    if headers.contains_key(COMPUTE_TIME) {
        // TGI omits it when it sums over prompts
        ledger.reports.iter_mut().for_each(|report| report.is_sum = false);
    }
    malformed
}

/// Distinguishes TEI and TGI, which share field names but not units.
fn text_server(headers: &HeaderMap) -> Option<Server> {
    if headers.contains_key(TOKENIZATION_TIME) {
        return Some(Server::Tei);
    }
    // a TGI stream has no times, only this field
    let is_tgi = [VALIDATION_TIME, TIME_PER_TOKEN, ACCEL_BUFFERING].iter().any(|name| headers.contains_key(name));
    let is_seconds = || headers.get(COMPUTE_TIME).is_some_and(|value| value.as_bytes().contains(&b'.'));
    (is_tgi || is_seconds()).then_some(Server::Tgi)
}

/// What the `Server` field names, and the model server, if it is one.
fn by_server_field(value: &[u8]) -> (ServerField, Option<Server>) {
    let starts = |with: &[u8]| value.len() >= with.len() && value[..with.len()].eq_ignore_ascii_case(with);
    if starts(b"uvicorn") {
        (ServerField::Uvicorn, None)
    } else if starts(b"BentoML Service/") {
        (ServerField::ModelServer, Some(Server::BentoMl))
    } else if starts(b"llama.cpp") {
        (ServerField::ModelServer, Some(Server::LlamaCpp))
    } else {
        (ServerField::Other, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{Basis, Stage, Stamp, Unit};

    const MS: u64 = 1_000_000;

    /// The fields of a recorded head, one a line.
    fn fixture(name: &str) -> HeaderMap {
        let path = format!("{}/../../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        head(&text)
    }

    fn head(text: &str) -> HeaderMap {
        let fields = text.lines().filter_map(|line| line.split_once(": "));
        fields.map(|(name, value)| (name.to_lowercase().parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn read(headers: &HeaderMap) -> (Ledger, usize) {
        let mut ledger = Ledger::open(Stamp::now(), 0);
        note_server(headers, &mut ledger);
        let malformed = report(headers, ReportPlace::Head, &mut ledger);
        (ledger, malformed)
    }

    fn stages(ledger: &Ledger) -> Vec<(Stage, u64, u32)> {
        ledger.reports.iter().map(|r| (r.stage, r.duration_ns, r.resolution_ns)).collect()
    }

    #[test]
    fn text_embeddings_inference_speaks_whole_milliseconds() {
        let (ledger, malformed) = read(&fixture("tei/embed.head"));
        assert_eq!((malformed, ledger.server), (0, Some(Server::Tei)));
        let expected =
            [(Stage::Preprocessing, 0, 1_000_000), (Stage::Queue, MS, 1_000_000), (Stage::Forward, 11 * MS, 1_000_000)];
        assert_eq!(stages(&ledger), expected);
        assert_eq!(ledger.work.get(Unit::InputToken), Some((9, Basis::Reported)));
    }

    #[test]
    fn text_generation_inference_speaks_seconds_under_one_of_the_same_names() {
        let (ledger, malformed) = read(&fixture("tgi/generate.head"));
        assert_eq!((malformed, ledger.server), (0, Some(Server::Tgi)));
        let expected =
            [(Stage::Preprocessing, MS, 1_000_000), (Stage::Queue, 0, 1_000_000), (Stage::Forward, 430 * MS, 1_000_000)];
        assert_eq!(stages(&ledger), expected);
        let work = [Unit::InputToken, Unit::OutputToken].map(|unit| ledger.work.get(unit));
        assert_eq!(work, [Some((17, Basis::Reported)), Some((20, Basis::Reported))]);
        assert!(ledger.generation.is_none(), "its pace has the first token in it");
    }

    #[test]
    fn text_generation_inference_sums_over_prompts_where_it_has_no_compute_time() {
        let sums = |text: &str| {
            let (ledger, malformed) = read(&head(text));
            assert_eq!((malformed, ledger.server), (0, Some(Server::Tgi)));
            ledger.reports.iter().map(|r| (r.stage, r.is_sum)).collect::<Vec<_>>()
        };
        let text = "x-compute-type: gpu\nx-validation-time: 8\nx-queue-time: 400\nx-inference-time: 4000";
        let all = |is_sum| [Stage::Preprocessing, Stage::Queue, Stage::Forward].map(|stage| (stage, is_sum));
        assert_eq!(sums(text), all(true));
        assert_eq!(sums(&format!("{text}\nx-compute-time: 0.5")), all(false));
    }

    #[test]
    fn a_stream_of_text_generation_inference_has_no_times() {
        let (ledger, malformed) = read(&fixture("tgi/generate_stream.head"));
        assert_eq!((malformed, ledger.server, ledger.reports.len()), (0, Some(Server::Tgi), 0));
    }

    #[test]
    fn servers_without_times_are_known_by_their_server_field() {
        let server = |text: &str| {
            let ledger = read(&head(text)).0;
            assert_eq!(ledger.server.is_some(), ledger.server_evidence == Some(ServerEvidence::Head));
            assert_eq!(ledger.server.is_some(), ledger.server_field == ServerField::ModelServer);
            ledger.server
        };
        assert_eq!(server("Server: BentoML Service/iris"), Some(Server::BentoMl));
        assert_eq!(server("server: llama.cpp"), Some(Server::LlamaCpp));
        assert_eq!(server("server: uvicorn"), None);
        assert_eq!(server("openai-processing-ms: 12"), None);
        assert_eq!(server("x-compute-type: gpu"), None, "either of two");
    }

    #[test]
    fn what_its_server_does_not_write_is_counted() {
        let (ledger, malformed) =
            read(&head("x-compute-type: cpu\nx-tokenization-time: 1\nx-queue-time: -2\nx-inference-time: soon"));
        assert_eq!((malformed, stages(&ledger)), (2, vec![(Stage::Preprocessing, MS, 1_000_000)]));
        assert_eq!(read(&head("x-queue-time: 5\nx-inference-time: 7")).0.reports.len(), 0, "of no known server");
    }
}
