//! Which running requests are sent a second time: those that an upstream has worked on for longer than almost all like it take, and only where
//! another upstream would otherwise do nothing. Whoever answers first answers (Dean and Barroso, The Tail at Scale, 2013).
//!
//! Sent by the time since it came rather than since it is worked on, or to an upstream that is busy, a second one makes a queue longer just when
//! it is long. The budget is of time, not of requests: a large one costs more.

use std::fmt::Debug;

use lapwing_ledger::Stamp;

use crate::hedges::{Hedge, HedgeWithheld};
use crate::queue::DispatchQueue;
use crate::service::WorkSeries;
use crate::upstreams::{RunId, UpstreamSet};

/// Below this utilisation a request that takes long is sent twice at once, if that is settled (Vulimiri et al., 2013: it stops paying between a
/// quarter and a half).
const DUAL_BELOW: f64 = 0.3;

impl<W: Debug> DispatchQueue<W> {
    /// Whether a running request of a series is sent a second time, to one of these upstreams, or to the spare one while that answers such
    /// requests as they do. If it may be later, `waker` wakes it, once.
    pub fn hedge(&mut self, id: RunId, (series, to): (WorkSeries, UpstreamSet), now: Stamp, waker: impl FnOnce() -> W) -> Hedge {
        let settings = self.settings.hedge;
        let spare = settings.spare.filter(|_| self.models.agreeing.contains(&series));
        let to = to.and(spare.into_iter().collect());
        let found = self.upstreams.iter().enumerate().find_map(|(at, upstream)| Some((at, upstream.run(id)?)));
        let Some((at, run)) = found else { return Hedge::Never };
        let Some(predicted) = run.predicted else { return Hedge::Never };
        let Some(began) = run.began else {
            self.hedges.block(id, waker());
            return Hedge::NotYet(None);
        };
        self.hedges.reckon(&self.upstreams, now);
        let is_dual =
            settings.dual_above_ns.is_some_and(|above| predicted.service_ns > above) && self.hedges.utilisation() < DUAL_BELOW;
        let due = began.plus(self.upstreams[at].takes(predicted.service_ns + predicted.hedge_more_ns));
        if now < due && !is_dual {
            return Hedge::NotYet(Some(due));
        }
        let withheld = match self.idle(to.without(UpstreamSet::from_iter([at])), now) {
            None => HedgeWithheld::Busy,
            Some(_) if self.hedges.utilisation() > settings.max_utilisation => HedgeWithheld::Utilisation,
            Some(leg) => {
                #[allow(clippy::cast_precision_loss, reason = "times below years")]
                let costs = predicted.service_ns as f64;
                if self.hedges.affords(costs) {
                    let second = self.begin(leg, Some(predicted), now);
                    self.hedges.spend(second, predicted.service_ns, now);
                    return Hedge::Go(leg, second);
                }
                HedgeWithheld::Budget
            }
        };
        self.hedges.block(id, waker());
        Hedge::Withheld(withheld)
    }

    /// Whoever takes long looks again whether an upstream is idle.
    pub(crate) fn wake_blocked(&mut self) {
        self.woken.extend(self.hedges.take_blocked());
    }
}
