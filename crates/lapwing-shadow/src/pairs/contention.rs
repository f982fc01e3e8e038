//! What copies cost clients: the upstream's latency of requests that are copied against those that are not, unpaired.

use std::time::Duration;

use rustc_hash::FxHashMap;

use lapwing_compare::ab::{LatencyReport, LifoMatcher, PairCounts, PairSide, Tracking};
use lapwing_ledger::{CopyCause, Exchange, ExchangeKind, LabelId, Outcome};

/// How many routes, models and classes are told apart; requests of further ones are left out.
const MAX_KEPT: usize = 64;

/// A route, a model and a cost class.
type Key = (LabelId, LabelId, Option<u8>);

#[derive(Debug, Default)]
struct Compared {
    matcher: LifoMatcher,
    counts: PairCounts,
    tracking: Tracking,
    since: Duration,
}

/// Latencies by route, model and class. The baseline is what is not copied.
#[derive(Debug, Default)]
pub(crate) struct Contention(FxHashMap<Key, Box<Compared>>);

impl Contention {
    /// Records a client's request that ended at `now`, from the start of the process: its upstream window, if it was answered.
    pub(crate) fn record(&mut self, exchange: &Exchange, now: Duration) {
        let ledger = &exchange.ledger;
        let side = match ledger.copied {
            None => PairSide::Baseline,
            Some(CopyCause::Share) => PairSide::Candidate,
            // a quota takes the first request after a pause, which is not like the next
            Some(CopyCause::Quota) => return,
        };
        let Some(window) = ledger.window.filter(|_| ledger.outcome == Outcome::Ok && ledger.kind == ExchangeKind::Request) else {
            return;
        };
        let class = ledger.work.class().and_then(|class| u8::try_from(class).ok());
        let key = (ledger.series.route, ledger.series.model, class);
        if !self.0.contains_key(&key) && self.0.len() >= MAX_KEPT {
            return;
        }
        let compared = self.0.entry(key).or_insert_with(|| Box::new(Compared { since: now, ..Compared::default() }));
        let ticket = compared.matcher.start(side);
        if let Some(pair) = compared.matcher.finish(ticket, Some(window.length_ns())) {
            pair.record(&mut compared.counts);
        }
    }

    /// Forgets the routes and models that are not kept.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(LabelId, LabelId) -> bool) {
        self.0.retain(|(route, model, _), _| is_kept(*route, *model));
    }

    /// Closes the blocks that have ended.
    pub(crate) fn tick(&mut self, now: Duration) {
        for compared in self.0.values_mut() {
            compared.tracking.tick(&compared.counts, now.saturating_sub(compared.since));
        }
    }

    /// The reports, in the order of their keys; without those of which all requests are copied, or none.
    pub(crate) fn reports(&self) -> Vec<(Key, LatencyReport)> {
        let reports = self.0.iter().filter(|(_, compared)| compared.counts.pairs() > 0);
        let mut reports: Vec<_> =
            reports.map(|(key, compared)| (*key, LatencyReport::new(&compared.counts, &compared.tracking))).collect();
        reports.sort_by_key(|(key, _)| *key);
        reports
    }
}
