//! What the spans of model servers come to, from the payload to the account. Fixtures name their sources; what is expected
//! of each is written out by hand.

use proptest::prelude::*;
use prost::Message;

use super as sample;
use crate::collector::Signal;
use crate::otlp::decode::{Decoded, spans};
use crate::otlp::json::to_protobuf;
use crate::{Aggregator, IncomingSpan, JoinSettings, Rules, SpanExpectation, SpanRule};
use lapwing_ledger::{
    Basis, Exchange, Ledger, Phase, Server, ServerEvidence, Source, SpanId, Stage, Stamp, TraceId, Unit, UpstreamWindow,
};
use lapwing_metrics::Counters;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// What the fixtures' times count from.
const ANCHOR_UNIX_NS: u64 = 1_795_225_347_000_000_000;
/// Lapwing's own span in them: the parent of what the server made.
const OWN: &str = "b7ad6b7169203331";

fn rules(spans: impl IntoIterator<Item = SpanRule>) -> Rules {
    Rules::new(std::iter::empty::<(&str, Stage)>(), spans)
}

fn decoded(body: &[u8], rules: &Rules) -> Vec<IncomingSpan> {
    let protobuf = to_protobuf(Signal::Traces, body).unwrap().bytes;
    let Decoded { spans, invalid, .. } = spans(&protobuf, rules).unwrap();
    assert_eq!(invalid, 0);
    spans
}

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn id(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The exchange of `total_ms` in whose upstream window, all of it, `spans` came.
fn exchange(total_ms: u64, anchor_unix_ns: u64, own: &str, spans: Vec<IncomingSpan>) -> Exchange {
    let mut ledger = Ledger::open(Stamp::default(), anchor_unix_ns);
    ledger.trace = TraceId::from_slice(&id("0af7651916cd43dd8448eb211c80319c")).unwrap();
    ledger.span = SpanId::from_slice(&id(own)).unwrap();
    ledger.traced = true;
    ledger.total_ns = total_ms * MS;
    ledger.window = Some(UpstreamWindow { start_ns: 0, head_ns: total_ms * MS, end_ns: total_ms * MS });
    let mut aggregator =
        Aggregator::new(JoinSettings { expect: SpanExpectation::Always, ..JoinSettings::default() }, Counters::default().into());
    let mut exchanges = Vec::new();
    let mut sink = |exchange: Exchange| exchanges.push(exchange);
    aggregator.ledger(ledger, Stamp::default(), &mut sink);
    aggregator.spans(spans, Stamp::default(), &mut sink);
    aggregator.flush(Stamp::default(), &mut sink);
    assert_eq!(exchanges.len(), 1);
    exchanges.remove(0)
}

fn of(name: &str, total_ms: u64) -> Exchange {
    exchange(total_ms, ANCHOR_UNIX_NS, OWN, decoded(&fixture(name), &rules([])))
}

/// The stages that spans claim, in nanoseconds.
fn traced(exchange: &Exchange) -> Vec<(Stage, u64)> {
    let of = |stage| (stage, exchange.account.by_source_ns(stage, Source::Traced));
    Stage::ALL.into_iter().map(of).filter(|(_, ns)| *ns > 0).collect()
}

fn phases(exchange: &Exchange) -> [u64; 2] {
    Phase::FORWARD.map(|phase| exchange.account.phase_ns(phase))
}

fn work(exchange: &Exchange) -> [Option<u64>; 2] {
    [Unit::InputToken, Unit::OutputToken].map(|unit| {
        let (amount, basis) = exchange.ledger.work.get(unit)?;
        (basis == Basis::Reported).then_some(amount)
    })
}

const TRITON_ANCHOR_UNIX_NS: u64 = 1_795_225_347_147_000_000;

/// The spans of one of the capture's requests: those that begin within these milliseconds of its start.
fn triton(from_ms: u64, to_ms: u64, rules: &Rules) -> Vec<IncomingSpan> {
    let mut spans = decoded(&sample::triton(), rules);
    let since_ms = |span: &IncomingSpan| (span.start_unix_ns - TRITON_ANCHOR_UNIX_NS) / MS;
    spans.retain(|span| (from_ms..to_ms).contains(&since_ms(span)));
    spans
}

/// Queue: 58,184 + 1,124,841 + 79,123 ns before the three steps. Preprocessing: the inputs of all steps (140,751 + 32,065 +
/// 34,349) and the model `pre` (137,134,830). Forward: the model `fwd`. Postprocessing: the outputs of `pre` and `fwd` up to
/// where the next step's queue begins (250,457 + 200,209), the model `post` (157,987,371) and its output (341,198).
const FIRST: [(Stage, u64); 4] = [
    (Stage::Preprocessing, 137_341_995),
    (Stage::Queue, 1_262_148),
    (Stage::Forward, 131_260_301),
    (Stage::Postprocessing, 158_779_235),
];

#[test]
fn an_ensemble_of_a_real_triton() {
    let first = exchange(430, TRITON_ANCHOR_UNIX_NS, OWN, triton(0, 450, &rules([])));
    assert_eq!((traced(&first), first.ledger.server), (FIRST.to_vec(), Some(Server::Triton)));
    assert_eq!(first.claimed_ns, 428_643_679, "from the first step's queue to the last one's output, without a gap");
}

#[test]
fn what_a_cache_answers_has_no_queue() {
    // 59,589 + 3,589,877; 52,023 + 3,728,118 + 45,170; fwd; 185,966 + 549,570: nothing of `post`
    let second = exchange(480, TRITON_ANCHOR_UNIX_NS, OWN, triton(450, 480, &rules([])));
    let expected = [
        (Stage::Preprocessing, 3_825_311),
        (Stage::Queue, 3_649_466),
        (Stage::Forward, 10_604_601),
        (Stage::Postprocessing, 735_536),
    ];
    assert_eq!(traced(&second), expected);
}

#[test]
fn the_order_in_which_spans_come_does_not_matter() {
    let mut spans = triton(0, 450, &rules([]));
    for _ in 0..spans.len() {
        spans.rotate_left(1);
        assert_eq!(traced(&exchange(430, TRITON_ANCHOR_UNIX_NS, OWN, spans.clone())), FIRST);
    }
    spans.reverse();
    assert_eq!(traced(&exchange(430, TRITON_ANCHOR_UNIX_NS, OWN, spans)), FIRST);
}

#[test]
fn a_stream_of_tritons_whose_sends_are_dated_twenty_minutes_ago() {
    let mut spans = triton(480, 700, &rules([]));
    let trace = TraceId::from_slice(&id("0af7651916cd43dd8448eb211c80319c")).unwrap();
    for span in &mut spans {
        // its client sent no traceparent
        (span.trace, span.parent) = (trace, span.parent.or_else(|| SpanId::from_slice(&id(OWN))));
    }
    let expected =
        [(Stage::Preprocessing, 51_361), (Stage::Queue, 49_252), (Stage::Forward, 124_472_009), (Stage::Postprocessing, 11_235)];
    assert_eq!(traced(&exchange(700, TRITON_ANCHOR_UNIX_NS, OWN, spans)), expected);
}

#[test]
fn a_model_that_calls_another_gives_it_its_time() {
    // 5 ms before each; 1 ms of input and output each; outer 11–30 and 80–95, inner 36–79
    let expected =
        [(Stage::Preprocessing, 2 * MS), (Stage::Queue, 10 * MS), (Stage::Forward, 77 * MS), (Stage::Postprocessing, 2 * MS)];
    assert_eq!(traced(&of("triton/bls_grpc.json", 100)), expected);
}

#[test]
fn the_users_rules_say_what_a_model_is() {
    let rule = |value: &str, stage| SpanRule {
        name: None,
        attribute: Some("triton.model_name".to_owned()),
        value: Some(value.to_owned()),
        deployment: None,
        stage,
    };
    let own = rules([rule("pre", Stage::Hydration), rule("post", Stage::Forward)]);
    let found = exchange(430, TRITON_ANCHOR_UNIX_NS, OWN, triton(0, 450, &own));
    let expected = [
        (Stage::Hydration, 137_134_830),
        (Stage::Preprocessing, 207_165),
        (Stage::Queue, 1_262_148),
        (Stage::Forward, 131_260_301 + 157_987_371),
        (Stage::Postprocessing, 250_457 + 200_209 + 341_198),
    ];
    assert_eq!(traced(&found), expected);
    let whole =
        SpanRule { name: Some("compute".to_owned()), attribute: None, value: None, deployment: None, stage: Stage::Queue };
    let found = exchange(430, TRITON_ANCHOR_UNIX_NS, OWN, triton(0, 450, &rules([whole])));
    let stages = traced(&found);
    assert!(!stages.is_empty() && stages.iter().all(|(stage, _)| *stage == Stage::Queue), "a rule for a span is about all of it");
}

#[test]
fn vllm_counts_from_arrival() {
    let found = of("vllm/llm_request.json", 130);
    // 1 ms of the front end, queue 3–7, prefill 7–32 (30 ms after the start), decode 32–122
    assert_eq!(traced(&found), [(Stage::Queue, 4 * MS), (Stage::Forward, 115 * MS)]);
    assert_eq!((phases(&found), work(&found)), ([25 * MS, 90 * MS], [Some(128), Some(10)]));
    let prefill = found.traced.iter().find(|span| &*span.name == "prefill").unwrap();
    assert_eq!((prefill.start_ns, prefill.end_ns), (7_000_000, 32_000_000));
    let pace = found.ledger.generation.unwrap();
    assert_eq!((pace.server_first_token_ns, pace.server_per_output_token_ns), (Some(30 * MS), Some(10 * MS)));
    assert_eq!(found.ledger.server, Some(Server::Vllm));
}

#[test]
fn sglangs_stage_spans_win_over_its_attributes() {
    let found = of("sglang/request.json", 120);
    let expected = [(Stage::Preprocessing, 3 * MS), (Stage::Queue, 30 * MS), (Stage::Forward, 70 * MS)];
    assert_eq!((traced(&found), phases(&found)), (expected.to_vec(), [10 * MS, 60 * MS]));
    assert_eq!((work(&found), found.ledger.server), ([Some(64), Some(7)], Some(Server::Sglang)));
    assert_eq!(found.ledger.generation.unwrap().server_first_token_ns, Some(45 * MS));
}

/// The tree of 0.5.23: a wait before the first batch of decodes, and a span for each token.
#[test]
fn sglangs_spans_of_single_tokens_are_not_joined() {
    let found = of("sglang/tree.json", 120);
    let expected = [(Stage::Preprocessing, 3 * MS), (Stage::Queue, 30_500 * US), (Stage::Forward, 69_500 * US)];
    assert_eq!((traced(&found), phases(&found)), (expected.to_vec(), [10 * MS, 59_500 * US]));
    assert_eq!((work(&found), found.ledger.server), ([Some(64), Some(7)], Some(Server::Sglang)));
    assert!(found.traced.iter().all(|span| &*span.name != "decode_loop"));
}

#[test]
fn without_stage_spans_nothing_is_called_sglangs_prefill() {
    let found = of("sglang/request_without_stages.json", 120);
    assert_eq!((traced(&found), phases(&found)), (vec![(Stage::Forward, 60 * MS)], [0, 60 * MS]));
    let decode = found.traced.iter().find(|span| &*span.name == "decode").unwrap();
    assert_eq!((decode.start_ns, decode.end_ns), (46_000_000, 106_000_000), "from the first token");
}

#[test]
fn tensorrt_llm_says_queue_first_token_and_end() {
    let found = of("tensorrt-llm/request.json", 1_510);
    assert_eq!(traced(&found), [(Stage::Queue, 300 * MS), (Stage::Forward, 1_200 * MS)]);
    assert_eq!((phases(&found), work(&found)), ([200 * MS, 1_000 * MS], [Some(2_000), Some(101)]));
    assert_eq!(found.ledger.server, Some(Server::TensorRtLlm));
}

#[test]
fn text_embeddings_inference_writes_durations_as_rust_does() {
    let found = of("tei/embed.json", 16);
    let expected = [(Stage::Preprocessing, 686_200), (Stage::Queue, 1_050 * US), (Stage::Forward, 11_230 * US)];
    assert_eq!((traced(&found), work(&found)), (expected.to_vec(), [Some(9), None]));
    assert_eq!(found.ledger.server, Some(Server::Tei));
}

/// Each of their functions has a span; `predict` and `generate` have the queue in them.
#[test]
fn spans_of_the_routers_functions_claim_nothing() {
    let expected = [(Stage::Preprocessing, 686_200), (Stage::Queue, 1_050 * US), (Stage::Forward, 11_230 * US)];
    // `predict.json`: the service has a name of the user's
    for name in ["tei/tree.json", "tei/predict.json"] {
        let found = of(name, 16);
        assert_eq!((traced(&found), found.ledger.server), (expected.to_vec(), Some(Server::Tei)), "{name}");
    }
    let found = of("tgi/tree.json", 410);
    let expected = [(Stage::Preprocessing, 686_200), (Stage::Queue, 5 * MS), (Stage::Forward, 392_500 * US)];
    assert_eq!((traced(&found), found.ledger.server), (expected.to_vec(), Some(Server::Tgi)));
}

#[test]
fn what_has_a_span_of_its_own_is_not_laid_again() {
    // `queued` 2–7 and `infer` 7.5–400 are spans; validation is an attribute only
    let found = of("tgi/generate.json", 410);
    let expected = [(Stage::Preprocessing, 686_200), (Stage::Queue, 5 * MS), (Stage::Forward, 392_500 * US)];
    assert_eq!((traced(&found), found.ledger.server), (expected.to_vec(), Some(Server::Tgi)));
    assert!(found.ledger.generation.is_none(), "its time per token has the first token in it");
}

#[test]
fn ray_serve_waits_for_a_replica() {
    // on the way 4–12, in the replica 12–48 except for the user's own span 13–18
    let found = of("ray-serve/request.json", 55);
    let expected = [(Stage::Preprocessing, 5 * MS), (Stage::Queue, 8 * MS), (Stage::Forward, 31 * MS)];
    assert_eq!((traced(&found), found.ledger.server), (expected.to_vec(), Some(Server::RayServe)));
}

/// Waits: 1,089,264–14,620,482 before the gateway, 58,023,723–88,461,750 before `Tok`, 124,740,831–174,157,562 before `Score`. The
/// gateway's replica takes 205,501,698 in all, `Tok`'s 18,143,656.
#[test]
fn ray_serve_waits_for_a_replica_at_every_level() {
    let found = of("ray-serve/nested.json", 235);
    let queue_ns = 13_531_218 + 30_438_027 + 49_416_731;
    let forward_ns = 205_501_698 - 30_438_027 - 49_416_731;
    assert_eq!(traced(&found), [(Stage::Queue, queue_ns), (Stage::Forward, forward_ns)]);
    let rule = |deployment: Option<&str>, value: Option<&str>, stage| SpanRule {
        name: None,
        attribute: value.map(|_| "deployment".to_owned()),
        value: value.map(str::to_owned),
        deployment: deployment.map(str::to_owned),
        stage,
    };
    let tok_ns = 18_143_656;
    let expected = [(Stage::Preprocessing, tok_ns), (Stage::Queue, queue_ns), (Stage::Forward, forward_ns - tok_ns)];
    for own in [rule(Some("Tok"), None, Stage::Preprocessing), rule(None, Some("Tok"), Stage::Preprocessing)] {
        let spans = decoded(&fixture("ray-serve/nested.json"), &rules([own]));
        assert_eq!(traced(&exchange(235, ANCHOR_UNIX_NS, OWN, spans)), expected, "a rule leaves the wait alone");
    }
    let whole = SpanRule { name: Some("route_to_replica Score*".to_owned()), ..rule(None, None, Stage::Downstream) };
    let spans = decoded(&fixture("ray-serve/nested.json"), &rules([whole]));
    let found = traced(&exchange(235, ANCHOR_UNIX_NS, OWN, spans));
    assert!(found.contains(&(Stage::Queue, queue_ns - 49_416_731)), "unless it names the routing span: {found:?}");
}

#[test]
fn a_server_behind_the_upstream_is_not_the_upstream() {
    let mut spans = decoded(&fixture("vllm/llm_request.json"), &rules([]));
    let gateway = SpanId::from_slice(&id("00000000000000aa"));
    let above = IncomingSpan { span: gateway.unwrap(), name: "POST /".into(), stage: None, server: None, ..spans[0].clone() };
    spans.iter_mut().for_each(|span| span.parent = gateway);
    spans.push(above);
    let found = exchange(130, ANCHOR_UNIX_NS, OWN, spans);
    assert_eq!(traced(&found), [(Stage::Queue, 4 * MS), (Stage::Forward, 115 * MS)], "its times count");
    assert_eq!((found.ledger.server, found.ledger.server_evidence), (None, None));
    let direct = of("vllm/llm_request.json", 130).ledger;
    assert_eq!((direct.server, direct.server_evidence), (Some(Server::Vllm), Some(ServerEvidence::Span)));
}

#[test]
fn a_servers_one_span_claims_nothing() {
    let found = of("mlserver/infer.json", 35);
    assert_eq!((traced(&found), found.stage(Stage::Upstream)), (vec![], Some((35 * MS, Source::Observed))));
}

#[test]
fn a_users_spans_of_the_same_names_are_the_users() {
    let span = |n: u8, name: &str, attributes| {
        let mut span = sample::span(TraceId::from_slice(&id("0af7651916cd43dd8448eb211c80319c")).unwrap(), n, name);
        span.attributes = attributes;
        span
    };
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let nanoseconds = sample::attribute("gen_ai.latency.time_in_model_prefill", Value::IntValue(1_000));
    let request = sample::request(vec![
        span(1, "compute", vec![]),
        span(2, "prefill_waiting", vec![]),
        span(3, "llm_request", vec![nanoseconds]),
        span(4, "replica_handle_request", vec![sample::text("deployment", "x")]),
        span(5, "embed", vec![sample::text("total_time", "soon"), sample::text("queue_time", "1")]),
        span(6, "prefill", vec![]),
    ]);
    let found: Vec<_> = spans(&request.encode_to_vec(), &rules([]))
        .unwrap()
        .spans
        .into_iter()
        .map(|s| (s.stage, s.phase, s.server.is_some()))
        .collect();
    let nothing = (None, None, false);
    let forward = |phase| (Some(Stage::Forward), phase, false);
    assert_eq!(found, [forward(None), nothing, nothing, nothing, nothing, forward(Some(Phase::Prefill))]);
}

const FIXTURES: [&str; 13] = [
    "triton/bls_grpc.json",
    "vllm/llm_request.json",
    "sglang/request.json",
    "sglang/request_without_stages.json",
    "tensorrt-llm/request.json",
    "tei/embed.json",
    "tei/predict.json",
    "tgi/tree.json",
    "sglang/tree.json",
    "tgi/generate.json",
    "ray-serve/request.json",
    "ray-serve/nested.json",
    "mlserver/infer.json",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Spans of any servers, below any others, at any times: the stages sum to the total, and nothing panics.
    #[test]
    fn time_is_conserved_whatever_servers_say(
        changes in proptest::collection::vec((0..60_usize, 0..60_usize, any::<i32>(), any::<bool>()), 0..12),
    ) {
        let mut spans: Vec<_> = FIXTURES.iter().flat_map(|name| decoded(&fixture(name), &rules([]))).collect();
        let trace = spans[0].trace;
        for (at, parent, shift, is_cut) in changes {
            let (at, parent) = (at % spans.len(), spans[parent % spans.len()].span);
            let span = &mut spans[at];
            (span.trace, span.parent) = (trace, Some(parent));
            let moved = span.start_unix_ns.saturating_add_signed(i64::from(shift));
            if is_cut { span.end_unix_ns = moved } else { span.start_unix_ns = moved }
            if let Some(server) = &mut span.server {
                server.begins_unix_ns = server.begins_unix_ns.map(|_| moved);
                server.pieces.iter_mut().for_each(|piece| piece.end_unix_ns = moved);
            }
        }
        let found = exchange(150, ANCHOR_UNIX_NS, OWN, spans);
        prop_assert_eq!(found.account.total_ns(), 150 * MS);
    }
}
