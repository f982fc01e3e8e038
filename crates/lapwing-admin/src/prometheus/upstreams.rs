//! The families of several upstreams. They are empty where there is one, whose absence `/readyz` shows.

use std::fmt;

use crate::surfaces::UpstreamState;
use lapwing_metrics::defs;
use lapwing_metrics::exposition::{Encoder, family, gauge};

/// Whether each takes connections, and what it has in flight.
pub(crate) fn encode(upstreams: &[UpstreamState], encoder: &mut dyn Encoder) -> fmt::Result {
    family(encoder, &defs::UPSTREAM_UP, |metric| {
        upstreams.iter().try_for_each(|one| gauge(metric, vec![("upstream", &*one.name)], u64::from(one.up)))
    })?;
    family(encoder, &defs::UPSTREAM_IN_FLIGHT, |metric| {
        upstreams.iter().try_for_each(|one| gauge(metric, vec![("upstream", &*one.name)], u64::from(one.in_flight)))
    })
}
