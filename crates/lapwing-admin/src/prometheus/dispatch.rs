//! The families of the queue in front of the upstreams, which are absent while `dispatch` is off.

use std::fmt;

use crate::dispatch::{DispatchClassView, DispatchView};
use lapwing_metrics::exposition::{Encoder, HistogramSample, count, family, gauge, seconds};
use lapwing_metrics::{REQUEST_BOUNDS_NS, defs};

/// What waits, and what is known of the upstreams.
pub(crate) fn encode(view: &DispatchView, encoder: &mut dyn Encoder) -> fmt::Result {
    let DispatchView { classes, upstreams, .. } = view;
    family(encoder, &defs::DISPATCH_ON, |metric| gauge(metric, vec![], u64::from(view.is_on)))?;
    family(encoder, &defs::DISPATCH_WAITING, |metric| {
        classes.iter().try_for_each(|one| gauge(metric, vec![("class", &*one.name)], one.waiting as u64))
    })?;
    family(encoder, &defs::DISPATCH_WAITING_WORK, |metric| {
        classes.iter().try_for_each(|one| gauge(metric, vec![("class", &*one.name)], seconds(one.waiting_work_ns)))
    })?;
    family(encoder, &defs::DISPATCH_CLASS_REQUESTS, |metric| {
        classes.iter().try_for_each(|one| {
            let results = [("sent", one.sent), ("queued", one.queued), ("refused", one.refused), ("expired", one.expired)];
            let mut results = results.into_iter();
            results.try_for_each(|(result, counted)| count(metric, vec![("class", &*one.name), ("result", result)], counted))
        })
    })?;
    family(encoder, &defs::DISPATCH_WAIT, |metric| classes.iter().try_for_each(|one| waits(one, metric)))?;
    family(encoder, &defs::DISPATCH_SLOTS, |metric| {
        let known = upstreams.iter().filter_map(|one| Some((&*one.upstream, one.slots?)));
        known.into_iter().try_for_each(|(name, slots)| gauge(metric, vec![("upstream", name)], u64::from(slots)))
    })?;
    family(encoder, &defs::DISPATCH_WINDOW_REFUSED, |metric| {
        let refused = upstreams.iter().filter_map(|one| Some((&*one.upstream, one.refused?)));
        refused.into_iter().try_for_each(|(name, why)| gauge(metric, vec![("upstream", name), ("reason", why)], 1))
    })?;
    family(encoder, &defs::DISPATCH_SPEED, |metric| {
        upstreams.iter().try_for_each(|one| gauge(metric, vec![("upstream", &*one.upstream)], one.speed))
    })?;
    family(encoder, &defs::DISPATCH_EJECTED, |metric| {
        upstreams.iter().try_for_each(|one| gauge(metric, vec![("upstream", &*one.upstream)], u64::from(one.is_ejected)))
    })?;
    family(encoder, &defs::DISPATCH_DOUBTED, |metric| {
        upstreams.iter().try_for_each(|one| gauge(metric, vec![("upstream", &*one.upstream)], u64::from(one.has_just_failed)))
    })?;
    family(encoder, &defs::DISPATCH_STALLED, |metric| {
        upstreams.iter().try_for_each(|one| gauge(metric, vec![("upstream", &*one.upstream)], u64::from(one.is_stalled)))
    })?;
    family(encoder, &defs::DISPATCH_EJECTIONS, |metric| count(metric, vec![], view.ejections))?;
    family(encoder, &defs::DISPATCH_PANICS, |metric| count(metric, vec![], view.panics))?;
    family(encoder, &defs::DISPATCH_SERVICE, |metric| count(metric, vec![], seconds(view.predicted_ns)))?;
    let Some(hedge) = &view.hedge else { return Ok(()) };
    family(encoder, &defs::HEDGE_SERVICE, |metric| count(metric, vec![], seconds(hedge.hedged_ns)))
}

/// How long requests of a class waited.
fn waits(DispatchClassView { name, waits, .. }: &DispatchClassView, metric: &mut dyn Encoder) -> fmt::Result {
    let bounds = REQUEST_BOUNDS_NS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(waits.buckets().iter().copied()).collect();
    let (count, sum) = (waits.count(), seconds(waits.sum_ns()));
    let sample = HistogramSample { count, sum, buckets: &buckets, native: None, exemplars: &[] };
    metric.histogram(&vec![("class", &**name)].into(), &sample)
}
