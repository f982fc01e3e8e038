//! The families of several upstreams. They are empty where there is one, whose absence `/readyz` shows.

use std::fmt;

use crate::surfaces::UpstreamState;
use lapwing_metrics::defs;
use lapwing_metrics::exposition::{Encoder, family, gauge};

/// Whether each takes connections, what it has in flight, when its own certificate expires, and its tags.
pub(crate) fn encode(upstreams: &[UpstreamState], encoder: &mut dyn Encoder) -> fmt::Result {
    family(encoder, &defs::UPSTREAM_UP, |metric| {
        upstreams.iter().try_for_each(|one| gauge(metric, vec![("upstream", &*one.name)], u64::from(one.up)))
    })?;
    family(encoder, &defs::UPSTREAM_IN_FLIGHT, |metric| {
        upstreams.iter().try_for_each(|one| gauge(metric, vec![("upstream", &*one.name)], u64::from(one.in_flight)))
    })?;
    family(encoder, &defs::UPSTREAM_CERTIFICATE_EXPIRY, |metric| {
        let own = upstreams.iter().filter_map(|one| Some((&*one.name, one.certificate_expiry_unix_s?)));
        own.into_iter().try_for_each(|(name, expiry_s)| gauge(metric, vec![("upstream", name)], expiry_s))
    })?;
    family(encoder, &defs::UPSTREAM_TAGS, |metric| {
        upstreams.iter().filter(|one| !one.tags.is_empty()).try_for_each(|one| {
            let tags = one.tags.iter().map(|(name, value)| (&**name, &**value));
            gauge(metric, [("upstream", &*one.name)].into_iter().chain(tags).collect::<Vec<_>>(), 1)
        })
    })
}
