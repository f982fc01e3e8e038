//! Sampling and spans of known exchanges, and both exporters before collectors that take, refuse or do not exist.

mod exporters;
mod sampler;
mod spans;

use std::sync::Arc;

use tokio::sync::mpsc;

use super::*;
use lapwing_attribution::otlp::OwnTraces;
use lapwing_ledger::merge;
use lapwing_ledger::{
    Exchange, Ledger, ObservedEvent, Outcome, Report, ReportPlace, SeriesKey, Span, SpanId, Stage, Stamp, TraceId, TraceMark,
    UpstreamWindow,
};
use lapwing_metrics::{Counters, Labels};

const MS: u64 = 1_000_000;
const ROUTE: &str = "POST /v2/models/{model}/infer";

struct Setup {
    labels: Arc<Labels>,
    counters: Arc<Counters>,
    own_traces: Arc<OwnTraces>,
}

impl Setup {
    fn new() -> Self {
        let own_traces = Arc::new(OwnTraces::new(TraceMark::random()));
        Self { labels: Arc::new(Labels::new(8, 8, 8)), counters: Arc::default(), own_traces }
    }

    /// A sampler of `share`; requests of `ROUTE` should take 100 ms at most.
    fn sampler(&self, share: f64) -> (TailSampler, mpsc::Receiver<QueuedExchange>) {
        let budgets = serde_json::from_value(serde_json::json!({ROUTE: {"p99": "100ms"}})).unwrap();
        let (queue, queued) = TraceQueue::new(self.counters.clone());
        let share = lapwing_ledger::SamplingThreshold::of_share(share);
        (TailSampler::new(share, budgets, self.labels.clone(), queue, self.own_traces.clone()), queued)
    }

    /// Half of it is forward, as the response reports; the first and the last tenth are observed.
    fn exchange(&self, route: &str, trace: TraceId, outcome: Outcome, total_ns: u64) -> Exchange {
        let mut ledger = Ledger::open(Stamp::from_ns(1).unwrap(), 1_795_000_000_000_000_000);
        let (route, model) = (self.labels.routes.intern(route), self.labels.models.intern("digits"));
        ledger.series = SeriesKey { route, model, upstream: self.labels.upstreams.intern("http://m:8000") };
        (ledger.outcome, ledger.total_ns, ledger.status) = (outcome, total_ns, 200);
        (ledger.trace, ledger.span) = (trace, SpanId::random());
        let tenth = total_ns / 10;
        ledger.window = Some(UpstreamWindow { start_ns: tenth, head_ns: total_ns - tenth, end_ns: total_ns - tenth });
        let observed = |stage, event, start_ns, end_ns| Span { stage, event, start_ns, end_ns };
        ledger.spans.push(observed(Stage::Ingress, ObservedEvent::Request, 0, tenth));
        ledger.spans.push(observed(Stage::Egress, ObservedEvent::Response, total_ns - tenth, total_ns));
        ledger.report(Report::of(Stage::Forward, total_ns / 2, ReportPlace::Head));
        merge(ledger, Vec::new())
    }
}

/// The `n`th of a sequence of trace ids that looks random: SplitMix64.
fn trace(n: u64) -> TraceId {
    let mixed = |n: u64| {
        let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    TraceId((u128::from(mixed(2 * n + 1)) << 64 | u128::from(mixed(2 * n + 2))).to_be_bytes())
}

fn drain(queued: &mut mpsc::Receiver<QueuedExchange>) -> Vec<SampledExchange> {
    std::iter::from_fn(|| queued.try_recv().ok()).map(|one| one.sampled).collect()
}
