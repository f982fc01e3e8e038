//! Surfaces with known traffic, for the tests of this module.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::diagnosis::DiagnosisSurface;
use crate::hosted::{HostedFallback, HostedModel, HostedModels};
use crate::inferred::Inference;
use crate::surfaces::Surfaces;
use lapwing_diagnosis::cost::{self, DebtAssessor, ModelOptima};
use lapwing_diagnosis::{
    BoundTotals, CapacityEstimate, Diagnosis, DiagnosisWindow, FittedValue, InferredFigures, InferredWaiting, LatencyBound,
    RouteDiagnosis,
};
use lapwing_ledger::merge;
use lapwing_ledger::{
    Annotation, Basis, Exchange, ExchangeKind, Generation, Ledger, ObservedEvent, Outcome, Phase, Report, ReportPlace, SeriesKey,
    Server, Span, SpanId, SpanNote, Stage, Stamp, TraceId, TracedSpan, Unit, UpstreamWindow, clock,
};
use lapwing_metrics::views::ProfilerLimits;
use lapwing_metrics::{
    BatchStatistics, Config, Counter, Counters, Labels, PolledInterval, PolledKey, PolledStage, PolledSum, Registry,
};
use lapwing_settings::{AdminTokenFor, ConfigHandle};
use lapwing_shadow::ShadowDrop;

/// Two models: one on a GPU that failed, one on the CPU although a GPU was looked for.
pub(crate) fn hosted() -> HostedModels {
    let model = |name: &str, executor| HostedModel {
        name: name.to_owned(),
        version: "2".to_owned(),
        executor,
        device: "cpu".to_owned(),
        device_name: None,
        precision: "fp32",
        ready: true,
        fallback: None,
        fault: None,
    };
    let on_gpu = HostedModel {
        device: "cuda:1".to_owned(),
        device_name: Some("NVIDIA H200".to_owned()),
        precision: "fp16",
        ready: false,
        fault: Some("cuda:1: is lost".to_owned()),
        ..model("embed", "plan")
    };
    let fallback = HostedFallback { reason: "no_driver", told: "libcuda.so.1: is not there".to_owned() };
    let fell_back = HostedModel { fallback: Some(fallback), ..model("fraud", "rten") };
    Arc::new(move || vec![on_gpu.clone(), fell_back.clone()])
}

pub(crate) const ROUTE: &str = "POST /v2/models/{model}/infer";
pub(crate) const CHAT: &str = "POST /v1/chat/completions";
/// A route with everything in it that text formats must escape.
pub(crate) const AWKWARD: &str = "GET /a \"b\" \\c,d\ne=é";

/// Two routes that are diagnosed, the window in the words, and these totals.
fn diagnosis(totals: Vec<BoundTotals>) -> DiagnosisSurface {
    let route =
        |route: &str, model: &str| RouteDiagnosis { route: route.into(), model: model.into(), ..RouteDiagnosis::default() };
    let diagnose = move |window: DiagnosisWindow| Diagnosis {
        window_seconds: if window == DiagnosisWindow::TenSeconds { 10.0 } else { 60.0 },
        routes: vec![route(ROUTE, "digits"), route(CHAT, "")],
        ..Diagnosis::default()
    };
    let words = |diagnosis: &Diagnosis| format!("{} routes in {} s\n", diagnosis.routes.len(), diagnosis.window_seconds);
    DiagnosisSurface::new(Arc::new(diagnose), Arc::new(move || totals.clone()), words, DiagnosisWindow::OneMinute)
}

/// Two seconds above the budget of one series, three quarters of them queue, and none of another.
fn excess(surfaces: &Surfaces) -> Vec<BoundTotals> {
    let mut bound_seconds = [0.0; LatencyBound::ALL.len()];
    bound_seconds[LatencyBound::Queue as usize] = 1.5;
    let series = |route, model| request(surfaces, route, model, Outcome::Ok, 1).ledger.series;
    vec![
        BoundTotals { series: series(ROUTE, "digits"), bound_seconds, excess_seconds: 2.0 },
        BoundTotals { series: series(CHAT, "tiny"), bound_seconds: [0.0; LatencyBound::ALL.len()], excess_seconds: 0.0 },
    ]
}

/// 400 requests of one series, of which forward takes 10 ms and queue 2 ms in the mean, each waits 12 ms for one before it, and p99 keeps its
/// budget up to 60 a second; and a series of which nothing is inferred.
fn inferred(surfaces: &Surfaces) -> [(SeriesKey, InferredFigures); 2] {
    let series = |route, model| request(surfaces, route, model, Outcome::Ok, 1).ledger.series;
    let fitted = serde_json::json!({
        "requests": 400, "unit": "row", "unexplained_mean_ns": 500_000, "unexplained_share": 0.1, "outlier_share": 0.0,
        "forward": stage(10e6), "queue": stage(2e6), "fixed_ns": value(1e6), "per_unit_ns": value(3e6), "per_ahead_ns": value(12e6),
        "slots": 1, "slots_interval": [1, 1],
    });
    let refused = serde_json::json!({"reason": "too_few_samples", "sentence": "too few", "help": "wait"});
    let of = |fitted, refused| {
        let stages = serde_json::json!({"source": "inferred", "fitted": fitted, "refused": refused});
        InferredFigures { stages: serde_json::from_value(stages).unwrap(), ..InferredFigures::default() }
    };
    let known = |of: f64| serde_json::from_value::<FittedValue>(value(of)).unwrap();
    let capacity = CapacityEstimate {
        quantile: 0.99,
        budget_ns: 50_000_000,
        rate_at_budget: Some(known(60.0)),
        utilisation: known(0.5),
        ..CapacityEstimate::default()
    };
    let chat = InferredFigures {
        waiting: Some(InferredWaiting { per_ahead_ns: known(12e6), slots: 1 }),
        capacity: Some(("p99", capacity)),
        ..of(fitted, serde_json::Value::Null)
    };
    [(series(CHAT, "tiny"), chat), (series(ROUTE, "digits"), of(serde_json::Value::Null, refused))]
}

/// A value that is known to a tenth.
fn value(value: f64) -> serde_json::Value {
    serde_json::json!({"value": value, "low": 0.9 * value, "high": 1.1 * value})
}

fn stage(mean_ns: f64) -> serde_json::Value {
    serde_json::json!({"mean_ns": value(mean_ns), "p50_ns": value(mean_ns), "p99_ns": value(3.0 * mean_ns)})
}

pub(crate) fn empty() -> Surfaces {
    let (labels, counters) = (Arc::new(Labels::new(10, 10, 10)), Arc::new(Counters::default()));
    let budgets =
        serde_json::json!({ROUTE: {"p50": "4ms", "p99": "50ms", "total": "50ms"}, "*": {"p999": "1500ms", "total": "1s"}});
    let config = Config { budgets: serde_json::from_value(budgets).unwrap(), ..Config::default() };
    Surfaces {
        registry: Arc::new(Mutex::new(Registry::new(config, labels, counters.clone()))),
        counters,
        optima: Arc::default(),
        upstreams: Arc::new(Vec::new),
        engine: Arc::new(Vec::new),
        split: None,
        trials: None,
        dispatch: None,
        cache: None,
        downstreams: None,
        shadow: None,
        recording: Arc::default(),
        diagnosis: Some(diagnosis(Vec::new())),
        admin_token: None,
        admin_token_for: AdminTokenFor::default(),
        config: ConfigHandle::fixed(serde_json::json!({"upstream": {"url": "http://127.0.0.1:8000", "password": "***"}})),
        config_schema: Arc::new(serde_json::json!({"type": "object", "required": ["upstream"]})),
        record: Arc::new(|_| Err("nothing is recorded here".to_owned())),
        ready: Arc::new(|| Box::pin(async { Ok(()) })),
        leaving: CancellationToken::new(),
        draining: CancellationToken::new(),
        limits: ConfigHandle::fixed(ProfilerLimits { queue: 4096, pending: 8192, orphan_spans: 16_384 }),
        started_unix_ns: clock::unix_ns(),
        started: Stamp::now(),
    }
}

/// A request of `total_ns`: the first and last tenth observed, forward reported as half.
pub(crate) fn request(surfaces: &Surfaces, route: &str, model: &str, outcome: Outcome, total_ns: u64) -> Exchange {
    let labels = surfaces.registry.lock().labels().clone();
    let mut ledger = Ledger::open(Stamp::now(), 1_795_246_795_000_000_042);
    ledger.series = SeriesKey {
        route: labels.routes.intern(route),
        model: labels.models.intern(model),
        upstream: labels.upstreams.intern("http://127.0.0.1:8000"),
    };
    (ledger.outcome, ledger.total_ns, ledger.status) = (outcome, total_ns, 200);
    (ledger.trace, ledger.span, ledger.parent) = (TraceId([7; 16]), SpanId([8; 8]), SpanId([9; 8]));
    (ledger.request_bytes, ledger.response_bytes) = (64, 128);
    let tenth = total_ns / 10;
    ledger.window = Some(UpstreamWindow { start_ns: tenth, head_ns: total_ns - tenth, end_ns: total_ns - tenth });
    let observed = |stage, event, start_ns, end_ns| Span { stage, event, start_ns, end_ns };
    ledger.spans.push(observed(Stage::Ingress, ObservedEvent::Request, 0, tenth));
    ledger.spans.push(observed(Stage::Egress, ObservedEvent::Response, total_ns - tenth, total_ns));
    ledger.report(Report::of(Stage::Forward, total_ns / 2, ReportPlace::Head));
    merge(ledger, Vec::new())
}

/// A streamed chat of 50 ms: prefill 5 ms, decode 30 ms, and a queue below the millisecond by the server's word; 100 input
/// and 11 output tokens; content at 10, 12, … 30 ms.
fn chat(surfaces: &Surfaces) -> Exchange {
    const MS: u64 = 1_000_000;
    let mut ledger = request(surfaces, CHAT, "tiny", Outcome::Ok, 50 * MS).ledger;
    ledger.reports.clear();
    let report = |stage, phase, duration_ns| Report {
        phase,
        resolution_ns: 1_000_000,
        ..Report::of(stage, duration_ns, ReportPlace::Body)
    };
    ledger.report(report(Stage::Queue, None, 0));
    ledger.report(report(Stage::Forward, Some(Phase::Prefill), 5 * MS));
    ledger.report(report(Stage::Forward, Some(Phase::Decode), 30 * MS));
    ledger.server = Some(Server::LlamaCpp);
    ledger.work.primary = Some(Unit::OutputToken);
    ledger.work.set(Unit::Row, 1, Basis::Counted);
    ledger.work.set(Unit::InputToken, 100, Basis::Estimated);
    ledger.work.set(Unit::OutputToken, 11, Basis::Reported);
    ledger.work.set(Unit::Flop, 22_000_000, Basis::Counted);
    let mut generation = Generation::default();
    (5..=15).for_each(|n| generation.content(n * 2 * MS));
    (generation.server_first_token_ns, generation.server_per_output_token_ns) = (Some(6 * MS), Some(3 * MS));
    ledger.generation = Some(Box::new(generation));
    ledger.first_byte_ns = 9 * MS;
    (ledger.circumstances.in_flight, ledger.circumstances.body_gap_ns) = (3, 4 * MS);
    ledger.circumstances.annotations.add(Annotation::SplitWrite);
    ledger.circumstances.annotations.add(Annotation::QuickAck);
    merge(ledger, Vec::new())
}

/// Two polls of the chat's server: 4 requests with 2 ms of queue, 20 ms of prefill and 120 ms of decode, then one more with as much.
fn poll(surfaces: &Surfaces) {
    const MS: u64 = 1_000_000;
    let mut registry = surfaces.registry.lock();
    let (model, upstream) =
        (registry.labels().models.intern("tiny"), registry.labels().upstreams.intern("http://127.0.0.1:8000"));
    let batch = BatchStatistics { size: Some(2.5), padding: Some(0.25), running: Some(3.0), waiting: Some(1.0) };
    for (requests, size) in [(4, 2.0), (1, 4.5)] {
        let stage = |stage, phase, ms: u64| PolledStage { stage, phase, sum: PolledSum { requests, ns: ms * MS } };
        let stages = vec![
            stage(Stage::Queue, None, 2),
            stage(Stage::Forward, Some(Phase::Prefill), 20),
            stage(Stage::Forward, Some(Phase::Decode), 120),
        ];
        let batch = Some(BatchStatistics { size: Some(size), ..batch });
        let interval = PolledInterval { covered_ns: 5_000 * MS, stages, batch };
        registry.record_polled(PolledKey { model, upstream }, &interval, Stamp::now().plus(60_000 * MS));
    }
}

/// The model `digits` takes 250 µs a row at best.
pub(crate) fn optima() -> Arc<ModelOptima> {
    let digits = serde_json::json!({"ns_per_unit": 250_000, "unit": "row", "source": "half of \"it\""});
    let config: cost::Config = serde_json::from_value(serde_json::json!({"models": {"digits": digits}})).unwrap();
    Arc::new(ModelOptima::new(&config, |_| Err("no plans here".to_owned()), Arc::new(|_| None)).unwrap())
}

/// A chat; a hundred answered requests of 1 to 100 rows, 1 ms each, half of it forward; one of each other outcome; a stream; a route that must be escaped, traced.
pub(crate) fn busy() -> Surfaces {
    let surfaces = Surfaces { optima: optima(), ..empty() };
    let assessor = DebtAssessor::new(surfaces.optima.clone(), surfaces.registry.lock().labels().clone());
    let record = |mut exchange| {
        assessor.assess(&mut exchange, |_| false);
        surfaces.registry.lock().record_recent(exchange, Stamp::now(), 0);
    };
    record(chat(&surfaces));
    poll(&surfaces);
    for n in 1..=100 {
        let mut one = request(&surfaces, ROUTE, "digits", Outcome::Ok, n * 1_000_000);
        one.ledger.work.primary = Some(Unit::Row);
        one.ledger.work.set(Unit::Row, n, Basis::Counted);
        record(one);
    }
    Outcome::ALL.into_iter().skip(1).for_each(|o| record(request(&surfaces, ROUTE, "digits", o, 5_000_000)));
    let mut stream = request(&surfaces, ROUTE, "digits", Outcome::Ok, 90_000_000_000);
    (stream.ledger.kind, stream.ledger.status) = (ExchangeKind::Stream, 101);
    record(stream);
    let mut traced = request(&surfaces, AWKWARD, "", Outcome::Cancelled, 2_000_000).ledger;
    (traced.outcome, traced.status) = (Outcome::Ok, 0);
    traced.reports.clear();
    let span = TracedSpan {
        name: "lookup".into(),
        stage: Some(Stage::Hydration),
        phase: None,
        start_ns: -5,
        end_ns: 700_000,
        depth: 1,
        note: SpanNote::default(),
    };
    record(merge(traced, vec![span]));
    let shadow = Some(super::shadow::one_pair(&surfaces));
    surfaces.recording.drop_sampled(ShadowDrop::NotRecognised);
    surfaces.counters.add(Counter::SpansJoined, 3);
    surfaces.counters.bump(Counter::DroppedPanic);
    let inferred = inferred(&surfaces);
    let inference = Inference {
        inferable: Arc::new({
            let keys = inferred.each_ref().map(|(key, _)| *key);
            move || keys.to_vec()
        }),
        infer: Arc::new(move |key| inferred.iter().find(|(of, _)| *of == key).map(|(_, figures)| figures.clone())),
    };
    let diagnosis = Some(diagnosis(excess(&surfaces)).with_inference(inference));
    let (split, trials) = (Some(super::split::one_split(&surfaces)), Some(super::trials::one_trial(4)));
    let labels = surfaces.registry.lock().labels().clone();
    let dispatch = Some(super::dispatch::one_queue("observe", false, &labels));
    let cache = Some(super::cache::one_cache(super::cache::on(), false, &labels));
    Surfaces { shadow, diagnosis, split, trials, dispatch, cache, ..surfaces }
}
