//! `/exchanges`: waterfalls of single requests. Offsets are nanoseconds from the request's start, durations nanoseconds.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use super::pairs::Pairs;
use super::query::ExchangeQuery;
use super::request_work::{Amounts, ExchangeDebt, TokenTiming, UnitTime};
use crate::{Labels, Registry};
use lapwing_ledger::{
    Annotation, Circumstances, Deadline, DeadlineSource, Exchange, ExchangeKind, Outcome, Phase, ServedBy, Server, Source,
    SpanId, Stage, TraceId, WaterfallBar, waterfall_bars,
};

/// The document.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Exchanges {
    exchanges: Vec<Waterfall>,
}

/// One exchange.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Waterfall {
    trace_id: TraceId,
    span_id: SpanId,
    parent_span_id: Option<SpanId>,
    route: Arc<str>,
    model: Option<Arc<str>>,
    upstream: Arc<str>,
    server: Option<Server>,
    started_at: String,
    status: Option<u16>,
    outcome: Outcome,
    served_by: ServedBy,
    kind: ExchangeKind,
    total_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<DeadlineView>,
    stages: Vec<StageTime>,
    upstream_queue_ns: u64,
    phases: Vec<PhaseTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spans: Option<Vec<Bar>>,
    coverage: Option<f64>,
    clipped: u32,
    clipped_by_cause: Pairs<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shifted: Option<u32>,
    incomplete: bool,
    request_bytes: u64,
    response_bytes: u64,
    annotations: Vec<Annotation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_gap_ns: Option<u64>,
    work: Option<Amounts>,
    class: Option<usize>,
    per_unit: Pairs<UnitTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheAnswers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_ns: Option<u64>,
    generation: Option<TokenTiming>,
    #[serde(skip_serializing_if = "Option::is_none")]
    computational_debt: Option<ExchangeDebt>,
}

/// How long the request may take in all.
#[derive(Debug, Serialize, JsonSchema)]
struct DeadlineView {
    budget_ns: u64,
    source: DeadlineSource,
}

impl From<Deadline> for DeadlineView {
    fn from(Deadline { budget_ns, source }: Deadline) -> Self {
        Self { budget_ns, source }
    }
}

/// The time that a stage owns. Over one exchange these sum to the total.
#[derive(Debug, Serialize, JsonSchema)]
struct StageTime {
    stage: Stage,
    ns: u64,
    source: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution_ns: Option<u32>,
}

/// What a feature cache answered, as the upstream says.
#[derive(Debug, Serialize, JsonSchema)]
struct CacheAnswers {
    hits: u32,
    misses: u32,
}

/// The part of its stage that a phase owns.
#[derive(Debug, Serialize, JsonSchema)]
struct PhaseTime {
    phase: Phase,
    ns: u64,
    source: Source,
}

/// A claim where it was placed in time. Bars may overlap and nest.
#[derive(Debug, Serialize, JsonSchema)]
struct Bar {
    name: String,
    stage: Stage,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
    start_ns: u64,
    end_ns: u64,
    source: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    shifted_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_by: Option<u32>,
}

impl From<WaterfallBar> for Bar {
    fn from(r: WaterfallBar) -> Self {
        let WaterfallBar { name, stage, phase, start_ns, end_ns, source, note } = r;
        let shifted_ns = Some(note.shifted_ns).filter(|ns| *ns != 0);
        let shared_by = Some(note.shared_by).filter(|requests| *requests > 0);
        Self { name, stage, phase, start_ns, end_ns, source, shifted_ns, shared_by }
    }
}

impl CacheAnswers {
    /// `None` if the upstream says nothing of a cache.
    fn of(seen: &Circumstances) -> Option<Self> {
        let Circumstances { cache_hits: hits, cache_misses: misses, .. } = *seen;
        (hits > 0 || misses > 0).then_some(Self { hits, misses })
    }
}

/// The exchanges that are asked for. The registry is locked only while they are copied out.
#[must_use]
pub fn exchanges(registry: &Mutex<Registry>, asked: &ExchangeQuery) -> Exchanges {
    let (kept, labels) = {
        let registry = registry.lock();
        let most = if asked.is_filtered() { usize::MAX } else { asked.limit };
        (registry.exchanges(asked.order, most), registry.labels().clone())
    };
    let is_wanted = |exchange: &&Arc<Exchange>| {
        let (route, model) = labels.names_of(&exchange.ledger);
        asked.trace.is_none_or(|trace| trace == exchange.ledger.trace) && asked.names.take(&route, &model)
    };
    let picked = kept.iter().filter(is_wanted).take(asked.limit);
    Exchanges { exchanges: picked.map(|exchange| Waterfall::of(exchange, &labels)).collect() }
}

impl Waterfall {
    /// An exchange with its spans.
    #[must_use]
    pub fn of(exchange: &Exchange, labels: &Labels) -> Self {
        let ledger = &exchange.ledger;
        let (route, model) = labels.names_of(ledger);
        let pieces = Stage::ALL.into_iter().filter_map(|stage| {
            let (ns, source) = exchange.stage(stage)?;
            Some(StageTime { stage, ns, source, resolution_ns: exchange.resolution_ns(stage) })
        });
        let parts = Phase::ALL.into_iter().filter_map(|phase| {
            let (ns, source) = exchange.phase(phase)?;
            Some(PhaseTime { phase, ns, source })
        });
        Self {
            trace_id: ledger.trace,
            span_id: ledger.span,
            parent_span_id: Some(ledger.parent).filter(|parent| *parent != SpanId::default()),
            route,
            model: Some(model).filter(|model| !model.is_empty()),
            upstream: labels.upstreams.text(ledger.series.upstream),
            server: ledger.server,
            started_at: humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(ledger.anchor_unix_ns)).to_string(),
            status: Some(ledger.status).filter(|status| *status != 0),
            outcome: ledger.outcome,
            served_by: ledger.served_by,
            kind: ledger.kind,
            total_ns: ledger.total_ns,
            deadline: ledger.deadline.map(DeadlineView::from),
            stages: pieces.collect(),
            upstream_queue_ns: exchange.upstream_queue_ns(),
            phases: parts.collect(),
            spans: Some(waterfall_bars(exchange).into_iter().map(Bar::from).collect()),
            coverage: exchange.coverage(),
            clipped: exchange.clipped.total(),
            clipped_by_cause: exchange.clipped.by_cause().into_iter().filter(|(_, count)| *count > 0).collect(),
            shifted: Some(exchange.shifted()).filter(|spans| *spans > 0),
            incomplete: exchange.is_incomplete,
            request_bytes: ledger.request_bytes,
            response_bytes: ledger.response_bytes,
            annotations: ledger.circumstances.annotations.iter().collect(),
            in_flight: Some(ledger.circumstances.in_flight).filter(|count| *count > 0),
            body_gap_ns: Some(ledger.circumstances.body_gap_ns).filter(|ns| *ns > 0),
            work: Amounts::of(&ledger.work),
            class: ledger.work.class(),
            per_unit: UnitTime::of(exchange),
            cache: CacheAnswers::of(&ledger.circumstances),
            first_byte_ns: Some(ledger.first_byte_ns).filter(|ns| *ns > 0),
            generation: TokenTiming::of(exchange),
            computational_debt: ExchangeDebt::of(exchange, labels),
        }
    }

    /// The same without spans.
    #[must_use]
    pub fn without_spans(self) -> Self {
        Self { spans: None, ..self }
    }
}
