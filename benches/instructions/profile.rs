//! The aggregator's work on an exchange: receiving and joining spans, the merge, the record.

use std::sync::Arc;

use lapwing_attribution::otlp::{ExportHandler, serve_http};
use lapwing_attribution::{Aggregator, IncomingSpan, JoinSettings, Rules, SpanExpectation};
use lapwing_ledger::{
    Basis, Exchange, Ledger, ObservedEvent, Outcome, Report, ReportPlace, SeriesKey, SpanId, Stage, Stamp, TraceId, TracedSpan,
    Unit, UpstreamWindow,
};
use lapwing_metrics::{Config, Counters, Labels, Registry};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::Repeat;

const US: u64 = 1_000;
const WALL_UNIX_NS: u64 = 1_795_246_795_000_000_000;
/// Spans of one request: the server's, and those of the handler's steps.
const NAMES: [&str; 8] = ["POST /score", "GET features", "hydrate", "tokenize", "queue", "forward", "postprocess", "audit"];

fn begin() -> Stamp {
    Stamp::from_ns(1_000_000_000_000).unwrap()
}

/// A closed ledger as the request path passes it to the aggregator: four observed spans, four reports, eight rows.
fn ledger(series: SeriesKey, n: u64) -> Ledger {
    let started = begin();
    let mut ledger = Ledger::open(started, WALL_UNIX_NS);
    let total_ns = 9_000 * US + n % 97 * 20 * US;
    let at = |us: u64| started.plus(us * US);
    ledger.observe(Stage::Ingress, ObservedEvent::Request, at(0), at(40));
    ledger.observe(Stage::Validation, ObservedEvent::Admit, at(40), at(43));
    ledger.observe(Stage::Unattributed, ObservedEvent::Send, at(43), at(58));
    for (stage, us) in
        [(Stage::Hydration, 700), (Stage::Preprocessing, 400), (Stage::Forward, 6_000), (Stage::Postprocessing, 300)]
    {
        ledger.report(Report::of(stage, us * US, ReportPlace::Head));
    }
    ledger.window = Some(UpstreamWindow { start_ns: 58 * US, head_ns: total_ns - 30 * US, end_ns: total_ns - 30 * US });
    ledger.observe(Stage::Egress, ObservedEvent::Response, started.plus(total_ns - 30 * US), started.plus(total_ns));
    ledger.work.primary = Some(Unit::Row);
    ledger.work.set(Unit::Row, 8, Basis::Counted);
    ledger.work.set(Unit::Element, 512, Basis::Counted);
    (ledger.request_bytes, ledger.response_bytes) = (1_024, 256);
    (ledger.series, ledger.outcome, ledger.status, ledger.total_ns) = (series, Outcome::Ok, 200, total_ns);
    let mut trace = [7; 16];
    trace[8..].copy_from_slice(&n.to_be_bytes());
    (ledger.trace, ledger.span, ledger.traced) = (TraceId(trace), SpanId((n << 8 | 0xff).to_be_bytes()), true);
    ledger
}

/// `merge` of a ledger without spans.
pub(crate) fn merge(_: bool) -> Repeat {
    let closed = ledger(SeriesKey::default(), 1);
    Box::new(move |n| {
        for _ in 0..n {
            std::hint::black_box(lapwing_ledger::merge(std::hint::black_box(&closed).clone(), Vec::new()));
        }
    })
}

/// Records a merged exchange into one of 16 series; the windows of all are rotated every 250 exchanges.
pub(crate) fn record(_: bool) -> Repeat {
    let labels = Arc::new(Labels::new(16, 1, 1));
    let key = |n: u64| SeriesKey { route: labels.routes.intern(&format!("POST /{n}")), ..SeriesKey::default() };
    let merged: Vec<Exchange> = (0..64).map(|n| lapwing_ledger::merge(ledger(key(n % 16), n), Vec::new())).collect();
    let mut registry = Registry::new(Config::default(), labels.clone(), Arc::new(Counters::default()));
    let mut now = begin();
    let mut count = 0;
    Box::new(move |n| {
        for _ in 0..n {
            registry.record_recent(merged[count % merged.len()].clone(), now, 0);
            count += 1;
            now = now.plus(8_000 * US);
            if count % 250 == 0 {
                registry.rotate(now);
            }
        }
    })
}

fn join() -> Aggregator {
    Aggregator::new(JoinSettings { expect: SpanExpectation::Always, ..JoinSettings::default() }, Arc::new(Counters::default()))
}

/// Eight spans of the ledger's request, as sent by an exporter.
fn spans_of(ledger: &Ledger) -> Vec<Span> {
    let id = |n: usize| {
        let mut id = ledger.span.0;
        id[7] = u8::try_from(n + 1).unwrap();
        id.to_vec()
    };
    let span = |(n, name): (usize, &&str)| Span {
        trace_id: ledger.trace.0.to_vec(),
        span_id: id(n),
        parent_span_id: if n == 0 { ledger.span.0.to_vec() } else { id(0) },
        name: (*name).to_owned(),
        kind: if n == 0 { 2 } else { 1 },
        start_time_unix_nano: WALL_UNIX_NS + 100 * US + n as u64 * 900 * US,
        end_time_unix_nano: WALL_UNIX_NS + if n == 0 { 8_900 * US } else { 100 * US + (n as u64 + 1) * 900 * US },
        ..Span::default()
    };
    NAMES.iter().enumerate().map(span).collect()
}

fn export(ledgers: &[Ledger]) -> Vec<u8> {
    let spans = ledgers.iter().flat_map(spans_of).collect();
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }.encode_to_vec()
}

/// The OTLP receiver over HTTP, with a client.
struct Receiver {
    runtime: Runtime,
    spans: mpsc::Receiver<Vec<IncomingSpan>>,
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Receiver {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, spans) = mpsc::channel(16);
        let inbox = ExportHandler::new(Arc::new(Rules::default()), Arc::new(Counters::default()), sender, None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        #[allow(clippy::disallowed_methods, reason = "the task ends with the process")]
        runtime.spawn(serve_http(listener, inbox, 1 << 20, CancellationToken::new()));
        let socket = runtime.block_on(TcpStream::connect(address)).unwrap();
        Self { runtime, spans, socket, buffer: Vec::with_capacity(4 << 10) }
    }

    /// Sends an export and returns the spans that were received.
    fn receive(&mut self, body: &[u8]) -> Vec<IncomingSpan> {
        use tokio::io::AsyncWriteExt;
        let head = "POST /v1/traces HTTP/1.1\r\nhost: m\r\ncontent-type: application/x-protobuf\r\ncontent-length: ";
        let request = [head.as_bytes(), body.len().to_string().as_bytes(), b"\r\n\r\n", body].concat();
        let Self { runtime, spans, socket, buffer } = self;
        runtime.block_on(async {
            socket.write_all(&request).await.unwrap();
            assert!(crate::peer::read_to(socket, b"\r\n\r\n", buffer).await);
            spans.recv().await.unwrap()
        })
    }
}

/// Receives an export with the spans of 16 requests over HTTP, decodes them and maps them to stages; counted per request of eight
/// spans.
pub(crate) fn otlp_receive(_: bool) -> Repeat {
    let mut receiver = Receiver::new();
    let ledgers: Vec<Ledger> = (0..16).map(|n| ledger(SeriesKey::default(), n)).collect();
    let body = export(&ledgers);
    Box::new(move |n| {
        for _ in 0..n.div_ceil(16) {
            let spans = receiver.receive(&body);
            assert_eq!(spans.len(), 16 * NAMES.len());
        }
    })
}

/// Joins a waiting ledger with its eight spans, and merges them.
pub(crate) fn otlp_join(_: bool) -> Repeat {
    let mut receiver = Receiver::new();
    let mut aggregator = join();
    let (mut now, mut serial) = (begin(), 0);
    let mut batches: Vec<(Vec<Ledger>, Vec<IncomingSpan>)> = Vec::new();
    let mut prepare = move || {
        let ledgers: Vec<Ledger> = (0..16).map(|n| ledger(SeriesKey::default(), serial + n)).collect();
        serial += 16;
        let spans = receiver.receive(&export(&ledgers));
        (ledgers, spans)
    };
    batches.extend((0..64).map(|_| prepare()));
    let (mut batches, mut merged) = (batches.into_iter(), 0);
    Box::new(move |n| {
        for _ in 0..n.div_ceil(16) {
            let (ledgers, spans) = batches.next().unwrap();
            for ledger in ledgers {
                aggregator.ledger(ledger, now, &mut |exchange| merged += count(&exchange));
            }
            aggregator.spans(spans, now, &mut |exchange| merged += count(&exchange));
            now = now.plus(300_000 * US);
            aggregator.tick(now, &mut |exchange| merged += count(&exchange));
            assert_eq!(std::mem::take(&mut merged), 16 * NAMES.len());
        }
    })
}

fn count(exchange: &Exchange) -> usize {
    let traced: &[TracedSpan] = &exchange.traced;
    traced.len()
}
