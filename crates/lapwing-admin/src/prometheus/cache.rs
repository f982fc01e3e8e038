//! The families of the cache, which are absent while it is off.

use std::fmt;

use crate::cache::CacheView;
use lapwing_cache::TrustState;
use lapwing_metrics::defs;
use lapwing_metrics::exposition::{Encoder, count, family, gauge, seconds};

/// What is answered from here, what stays out, and what is kept.
pub(crate) fn encode(view: &CacheView, encoder: &mut dyn Encoder) -> fmt::Result {
    family(encoder, &defs::CACHE_REQUESTS, |metric| {
        view.results.iter().try_for_each(|(result, counted)| count(metric, vec![("result", *result)], *counted))
    })?;
    family(encoder, &defs::CACHE_REFUSED, |metric| {
        view.refused.iter().try_for_each(|(reason, counted)| count(metric, vec![("reason", *reason)], *counted))
    })?;
    family(encoder, &defs::CACHE_COMPARED, |metric| {
        let compared = [("same", view.compared - view.different), ("different", view.different)];
        compared.into_iter().try_for_each(|(result, counted)| count(metric, vec![("result", result)], counted))
    })?;
    family(encoder, &defs::CACHE_SERIES, |metric| {
        [TrustState::Unproven, TrustState::Proven, TrustState::Refused].into_iter().try_for_each(|state| {
            let series = view.series.iter().filter(|one| one.state == state.name()).count();
            gauge(metric, vec![("state", state.name())], series as u64)
        })
    })?;
    family(encoder, &defs::CACHE_ENTRIES, |metric| gauge(metric, vec![], view.entries as u64))?;
    family(encoder, &defs::CACHE_BYTES, |metric| gauge(metric, vec![], view.bytes))?;
    family(encoder, &defs::CACHE_STORED, |metric| count(metric, vec![], view.stored))?;
    family(encoder, &defs::CACHE_SAVED, |metric| count(metric, vec![], seconds(view.saved_ns)))?;
    family(encoder, &defs::CACHE_WAITING, |metric| {
        let roles = [("leading", view.leading), ("following", view.following)];
        roles.into_iter().try_for_each(|(role, requests)| gauge(metric, vec![("role", role)], requests as u64))
    })
}
