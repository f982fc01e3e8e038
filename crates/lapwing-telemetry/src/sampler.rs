//! Decides which exchanges are sent as traces, when each is complete: every error, everything over a budget of its route, pairs whose
//! outputs turn out to differ, the slowest of each route in each minute, and a share of the rest.
//!
//! Weights let a backend estimate counts without bias: what is always taken has weight 1, what the share takes 1 over the share, and
//! what is taken in addition (the slowest, the differing) 0, because the share already counts for it. Bounded: one exchange for each
//! route, 1,024 that wait for their outputs, and the queue to the exporter.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::trace_queue::{SampledExchange, SamplingReason, TraceQueue};
use lapwing_attribution::otlp::OwnTraces;
use lapwing_ledger::{Exchange, ExchangeKind, LabelId, Ledger, PairId, SamplingThreshold, Stamp, TraceId};
use lapwing_metrics::{Budget, Labels, RouteBudget};

/// How long the slowest exchange of a route is looked for, in nanoseconds.
const MINUTE_NS: u64 = 60_000_000_000;
/// Routes of which the slowest exchange is kept.
const ROUTES: usize = 256;
/// Exchanges that wait for the comparison of their outputs.
const UNCOMPARED: usize = 1024;

/// The sampler. Only the aggregator's thread uses it.
#[derive(Debug)]
pub struct TailSampler {
    share: SamplingThreshold,
    budgets: BTreeMap<String, Budget>,
    labels: Arc<Labels>,
    queue: TraceQueue,
    own_traces: Arc<OwnTraces>,
    /// The slowest of each route since `minute`: how long it took, and the exchange, unless it was sent for another reason.
    slowest: FxHashMap<LabelId, (u64, Option<Box<Exchange>>)>,
    minute: Stamp,
    /// Not sent, and compared with a target's answer by and by; the oldest first.
    uncompared: VecDeque<(PairId, Box<Exchange>)>,
}

impl TailSampler {
    /// Sends what it takes to `queue`; `share` is that of what has no other reason. `own_traces` learns which spans are sent.
    #[must_use]
    pub fn new(
        share: SamplingThreshold,
        budgets: BTreeMap<String, Budget>,
        labels: Arc<Labels>,
        queue: TraceQueue,
        own_traces: Arc<OwnTraces>,
    ) -> Self {
        let (slowest, uncompared) = (FxHashMap::default(), VecDeque::new());
        Self { share, budgets, labels, queue, own_traces, slowest, minute: Stamp::now(), uncompared }
    }

    /// Takes a closed ledger that is still to be merged. Whether it is sent for an error or for its budget is known already; so the
    /// upstream's spans that are passed on meanwhile keep Lapwing's span as their parent.
    pub fn foresee(&self, ledger: &Ledger) {
        if !ledger.is_copy && Self::always(ledger, &self.over_budget(ledger)).is_some() {
            self.own_traces.record_sent(ledger.span);
        }
    }

    /// Takes a merged exchange of a client.
    pub fn offer(&mut self, exchange: &Exchange, now: Stamp) {
        let ledger = &exchange.ledger;
        if ledger.trace == TraceId::default() {
            return; // `trace_sampling` was off
        }
        self.tick(now);
        let over_budget = self.over_budget(ledger);
        let decision = match Self::always(ledger, &over_budget) {
            Some(reason) => Some((reason, SamplingThreshold::EVERYTHING)),
            None => self.share.samples(ledger.trace).then_some((SamplingReason::Share, self.share)),
        };
        self.note_slowest(exchange, decision.is_some());
        match decision {
            Some((reason, threshold)) => {
                let exchange = without_gaps(exchange);
                self.queue.put(SampledExchange { exchange, reason, threshold: Some(threshold), over_budget });
            }
            None => {
                let Some(pair) = ledger.pair.filter(|_| ledger.copied.is_some()) else { return };
                if self.uncompared.len() >= UNCOMPARED {
                    self.uncompared.pop_front();
                }
                self.uncompared.push_back((pair, Box::new(without_gaps(exchange))));
            }
        }
    }

    /// Takes the result that the outputs of a pair differ.
    pub fn mismatch(&mut self, pair: PairId) {
        let Some(at) = self.uncompared.iter().position(|(own, _)| *own == pair) else { return };
        let Some((_, exchange)) = self.uncompared.remove(at) else { return };
        // it is not sent once more as the slowest
        if let Some((_, kept)) = self.slowest.get_mut(&exchange.ledger.series.route)
            && kept.as_ref().is_some_and(|kept| kept.ledger.span == exchange.ledger.span)
        {
            *kept = None;
        }
        self.send_beside(*exchange, SamplingReason::ShadowMismatch);
    }

    /// Sends the slowest of each route once a minute is over.
    pub fn tick(&mut self, now: Stamp) {
        if now.since(self.minute) >= MINUTE_NS {
            self.minute = now;
            self.flush();
        }
    }

    /// Sends the slowest so far; to be called at the end too.
    pub fn flush(&mut self) {
        let slowest: Vec<_> = self.slowest.drain().filter_map(|(_, (_, exchange))| exchange).collect();
        for exchange in slowest {
            self.uncompared.retain(|(_, waiting)| waiting.ledger.span != exchange.ledger.span);
            self.send_beside(*exchange, SamplingReason::Slowest);
        }
    }

    fn send_beside(&mut self, exchange: Exchange, reason: SamplingReason) {
        self.queue.put(SampledExchange { exchange, reason, threshold: None, over_budget: Vec::new() });
    }

    /// The reason for which an exchange is taken whatever the share.
    fn always(ledger: &Ledger, over_budget: &[&'static str]) -> Option<SamplingReason> {
        if ledger.outcome.is_error() {
            Some(SamplingReason::Error)
        } else {
            (!over_budget.is_empty()).then_some(SamplingReason::OverBudget)
        }
    }

    /// The budgets that it took longer than, as `lapwing_requests_over_budget_total` counts.
    fn over_budget(&self, ledger: &Ledger) -> Vec<&'static str> {
        if self.budgets.is_empty() || ledger.kind == ExchangeKind::Stream {
            return Vec::new();
        }
        let budget = RouteBudget::of(&self.budgets, &self.labels.routes.text(ledger.series.route));
        let over = budget.limits().filter(|(_, limit_ns)| ledger.total_ns > *limit_ns);
        over.map(|(place, _)| RouteBudget::QUANTILES[place].0).collect()
    }

    fn note_slowest(&mut self, exchange: &Exchange, is_sent: bool) {
        let ledger = &exchange.ledger;
        let (route, total_ns) = (ledger.series.route, ledger.total_ns);
        let is_slowest = match self.slowest.get(&route) {
            Some((slowest_ns, _)) => total_ns > *slowest_ns,
            None => self.slowest.len() < ROUTES,
        };
        if is_slowest && ledger.kind == ExchangeKind::Request {
            let kept = (!is_sent).then(|| Box::new(without_gaps(exchange)));
            self.slowest.insert(route, (total_ns, kept));
        }
    }
}

/// A copy without the gaps between tokens, of which there may be thousands.
fn without_gaps(exchange: &Exchange) -> Exchange {
    let mut copy = exchange.clone();
    if let Some(generation) = &mut copy.ledger.generation {
        generation.gaps_us = Vec::new();
    }
    copy.ledger.prompt = None;
    copy
}
