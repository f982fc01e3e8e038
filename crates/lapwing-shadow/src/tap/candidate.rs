//! A request that the share did not draw, on a route with a quota. It is captured like one that is copied, and waits with the request
//! itself: only when its account closes, and says which cost class it is of, does the quota take it or let it go.

use std::sync::Arc;

use super::branch::{ShadowJob, TapParts};
use crate::counters::ShadowDrop;
use crate::quota::{QuotaIndex, QuotaResult};
use lapwing_ledger::{CopyCause, Ledger, Outcome, Stamp};
use lapwing_proxy::OnClose;

/// A captured request that the quota may take.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) job: ShadowJob,
    pub(crate) quota: QuotaIndex,
    pub(crate) parts: Arc<TapParts>,
}

impl OnClose for Candidate {
    fn on_close(self: Box<Self>, ledger: &mut Ledger) {
        let Self { job, quota, parts } = *self;
        let result = decide(job, quota, &parts, ledger);
        parts.quotas.record(quota, result);
    }
}

/// Hands the copy over if the quota has room for it.
fn decide(mut job: ShadowJob, quota: QuotaIndex, parts: &TapParts, ledger: &mut Ledger) -> QuotaResult {
    let is_answered = ledger.window.is_some() && ledger.outcome != Outcome::Cancelled;
    if !is_answered {
        return QuotaResult::LetGo;
    }
    if !parts.has_room_for_candidates() {
        return QuotaResult::Skipped;
    }
    if !parts.quotas.take(quota, ledger.series.model, ledger.work.class(), Stamp::now()) {
        return QuotaResult::LetGo;
    }
    // a recording may have numbered it meanwhile
    let pair = ledger.pair.unwrap_or(job.pair);
    job.pair = pair;
    if parts.queue.push(job).is_err() {
        parts.counters.drop_sampled(ShadowDrop::QueueFull);
        return QuotaResult::Skipped;
    }
    (ledger.pair, ledger.copied) = (Some(pair), Some(CopyCause::Quota));
    QuotaResult::Taken
}
