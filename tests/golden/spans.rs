//! What exporters send: captures of model servers and spans of an application, through the real receiver; and the requests
//! that they belong to.

use std::sync::Arc;

use lapwing_attribution::otlp::{ExportHandler, serve_http};
use lapwing_attribution::{IncomingSpan, Rules, SpanRule};
use lapwing_ledger::{Ledger, Server, SpanId, Stage, TraceId};
use lapwing_metrics::{Counter, Counters, Labels};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::recording::{Event, Events, MS, WALL_UNIX_NS};
use crate::traffic::request;

/// One export: the content type and the body.
pub(crate) struct Export(&'static str, Vec<u8>);

/// The receiver, on a port of its own.
pub(crate) struct Receiver {
    address: std::net::SocketAddr,
    counters: Arc<Counters>,
    spans: Mutex<mpsc::Receiver<Vec<IncomingSpan>>>,
    _serving: JoinSet<std::io::Result<()>>,
}

impl Receiver {
    pub(crate) fn start(counters: Arc<Counters>) -> Self {
        let rule = SpanRule {
            name: Some("vector_*".to_owned()),
            attribute: None,
            value: None,
            deployment: None,
            stage: Stage::Hydration,
        };
        let rules = Rules::new(std::iter::empty::<(&str, Stage)>(), [rule]);
        let (sender, spans) = mpsc::channel(64);
        let handler = ExportHandler::new(Arc::new(rules), counters.clone(), sender, None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(serve_http(listener, handler, 1 << 20, CancellationToken::new()));
        Self { address, counters, spans: Mutex::new(spans), _serving: serving }
    }

    /// Sends the export, and gives the spans that come out.
    pub(crate) async fn receive(&self, Export(kind, body): &Export) -> Vec<IncomingSpan> {
        let refused = self.counters.get(Counter::OtlpMalformed);
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let was_refused = self.counters.get(Counter::OtlpMalformed) > refused;
        assert_eq!(answer.starts_with("HTTP/1.1 200"), !was_refused, "{answer}");
        let mut spans = self.spans.lock();
        std::iter::from_fn(|| spans.try_recv().ok()).flatten().collect()
    }
}

/// Every export and the requests to which their spans belong.
pub(crate) fn all(labels: &Labels) -> Events {
    let mut events = captures(labels);
    events.extend(application(labels));
    events.extend(strays(labels));
    events
}

// === captures ===

/// The trace and Lapwing's own span in all captures.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const OWN: [u8; 8] = [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31];

/// File, route, model, server, milliseconds from the recording's wall clock to the request's start, how long it took.
type Capture = (&'static str, &'static str, &'static str, Option<Server>, u64, u64);

const GRPC: &str = "POST /inference.GRPCInferenceService/ModelInfer";
const CHAT: &str = "POST /v1/chat/completions";
const CAPTURES: &[Capture] = &[
    ("otlp/triton_2.51_ensemble_otlp.json", GRPC, "pipe", Some(Server::Triton), 147, 700),
    ("triton/bls_grpc.json", GRPC, "bls", Some(Server::Triton), 0, 100),
    ("vllm/llm_request.json", CHAT, "org/m", Some(Server::Vllm), 0, 130),
    ("sglang/request.json", CHAT, "org/m", Some(Server::Sglang), 0, 120),
    ("sglang/request_without_stages.json", CHAT, "org/m", None, 0, 120),
    ("tensorrt-llm/request.json", CHAT, "org/m", Some(Server::TensorRtLlm), 0, 1_510),
    ("tei/embed.json", "POST /embed", "", Some(Server::Tei), 0, 16),
    ("tgi/generate.json", "POST /generate", "", None, 0, 410),
    ("ray-serve/request.json", "POST /score", "", Some(Server::RayServe), 0, 55),
    ("mlserver/infer.json", "POST /v2/models/{model}/infer", "digits", Some(Server::MlServer), 0, 35),
];

/// The captures, one every three seconds; each in a trace of its own. The clocks of their requests are those of the captures.
fn captures(labels: &Labels) -> Events {
    let mut events = Events::new();
    for (n, (file, route, model, server, anchor_ms, total_ms)) in CAPTURES.iter().enumerate() {
        let path = format!("{}/tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
        let mine = format!("{n:02x}{}", &TRACE[2..]);
        let body = std::fs::read_to_string(path).unwrap().replace(TRACE, &mine);
        let closes_ms = 20_000 + 3_000 * n as u64;
        let mut ledger = request(labels, route, model, closes_ms, total_ms * MS);
        ledger.anchor_unix_ns = WALL_UNIX_NS + anchor_ms * MS;
        (ledger.trace, ledger.span, ledger.server) = (trace(&mine), SpanId(OWN), *server);
        ledger.traced = true;
        ledger.reports.clear();
        events.push((closes_ms, Event::Closed(Box::new(ledger))));
        events.push((closes_ms + 400, Event::Exported(Export("application/json", body.into_bytes()))));
    }
    events
}

fn trace(hex: &str) -> TraceId {
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    TraceId::from_slice(&bytes).unwrap()
}

// === an application ===

fn text(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// A span of the ledger's trace, from and to in microseconds after its start.
fn span(ledger: &Ledger, id: u8, parent: [u8; 8], name: &str, kind: i32, [from_us, to_us]: [i64; 2]) -> Span {
    let unix_ns = |us: i64| ledger.anchor_unix_ns.saturating_add_signed(us * 1_000);
    let mut span_id = ledger.span.0;
    span_id[7] = id;
    Span {
        trace_id: ledger.trace.0.to_vec(),
        span_id: span_id.to_vec(),
        parent_span_id: parent.to_vec(),
        name: name.to_owned(),
        kind,
        start_time_unix_nano: unix_ns(from_us),
        end_time_unix_nano: unix_ns(to_us),
        ..Span::default()
    }
}

fn export(spans: Vec<Span>, is_json: bool) -> Event {
    let attributes = vec![text("service.name", "score"), text("service.instance.id", "pod-1")];
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }],
    };
    Event::Exported(match is_json {
        true => Export("application/json", serde_json::to_vec(&request).unwrap()),
        false => Export("application/x-protobuf", request.encode_to_vec()),
    })
}

/// The spans that an application with OpenTelemetry's SDK makes of one request: server span, look-ups in a store (two at
/// once), a tokenizer, the model with a rule of the user's below it, a call afterwards; one is before the request's start.
fn spans_of(ledger: &Ledger, n: u64) -> Vec<Span> {
    let end = i64::try_from(ledger.total_ns / 1_000).unwrap();
    let own = ledger.span.0;
    let below = |id: u8| {
        let mut parent = own;
        parent[7] = id;
        parent
    };
    let mut lookup = span(ledger, 2, below(1), "GET features", 3, [300, 900]);
    lookup.attributes = vec![text("db.system", "redis")];
    let mut own_stage = span(ledger, 8, below(1), "calibrate scores", 1, [end - 900, end - 500]);
    own_stage.attributes = vec![text("lapwing.stage", "postprocessing")];
    let mut spans = vec![
        span(ledger, 1, own, "POST /score", 2, [100, end - 200]),
        lookup,
        span(ledger, 3, below(1), "vector_search", 1, [600, 1_400]),
        span(ledger, 4, below(1), "pipeline.tokenize", 1, [1_500, 2_100]),
        span(ledger, 5, below(1), "forward", 1, [2_100, end - 1_000]),
        span(ledger, 6, below(5), "queue_wait", 1, [2_100, 2_100 + i64::try_from(n % 7).unwrap() * 100]),
        own_stage,
        span(ledger, 9, below(1), "audit", 3, [end - 500, end + 4_000]),
    ];
    if n.is_multiple_of(5) {
        spans.push(span(ledger, 10, below(1), "hydrate", 1, [-2_000, 250]));
    }
    if n.is_multiple_of(6) {
        spans.extend((20..50).map(|id| span(ledger, id, below(5), "layer", 1, [2_200, 2_200 + i64::from(id)])));
    }
    spans
}

/// A request every second to an application that exports every five seconds, in protobuf and JSON by turns.
fn application(labels: &Labels) -> Events {
    let mut events = Events::new();
    let mut batch = Vec::new();
    for n in 0..90_u64 {
        let closes_ms = 60_000 + 1_000 * n;
        let mut ledger = request(labels, "POST /score", "ranker", closes_ms, (6_000 + n * 37 % 4_000) * 1_000);
        ledger.traced = true;
        ledger.reports.clear();
        if n % 11 != 0 {
            batch.extend(spans_of(&ledger, n));
        }
        events.push((closes_ms, Event::Closed(Box::new(ledger))));
        if n % 5 == 4 {
            events.push((closes_ms + 700, export(std::mem::take(&mut batch), n % 2 == 0)));
        }
    }
    events
}

/// Spans that find no exchange, or not one only: of nobody's trace, too late, without ids, of a trace that several requests
/// share; and a body that is none.
fn strays(labels: &Labels) -> Events {
    let mut events = Events::new();
    let stranger = request(labels, "POST /score", "ranker", 200_000, 9_000_000);
    events.push((200_100, export(vec![span(&stranger, 1, [9; 8], "forward", 1, [100, 200])], true)));
    let mut broken = span(&stranger, 1, [9; 8], "forward", 1, [100, 200]);
    broken.trace_id = vec![1, 2, 3];
    events.push((200_200, export(vec![broken], false)));
    events.push((200_300, Event::Exported(Export("application/json", b"{\"resourceSpans\":7}".to_vec()))));
    for n in 0..3_u64 {
        let mut shared = request(labels, "POST /score", "ranker", 201_000 + n, (8 + n) * MS);
        (shared.trace, shared.traced) = (TraceId([0x5a; 16]), true);
        if n == 2 {
            let below = span(&shared, 1, shared.span.0, "POST /score", 2, [500, 7_000]);
            let lost = span(&shared, 7, [0xee; 8], "forward", 1, [1_000, 6_000]);
            let late = span(&shared, 8, shared.span.0, "tokenize", 1, [600, 900]);
            events.push((201_400, export(vec![below, lost], true)));
            events.push((230_000, export(vec![late], true)));
        }
        events.push((201_000 + n, Event::Closed(Box::new(shared))));
    }
    // more orphans than may be held
    let many = (1..60).map(|id| span(&stranger, id, [id; 8], "forward", 1, [0, 10])).collect();
    events.push((270_000, export(many, false)));
    events
}
