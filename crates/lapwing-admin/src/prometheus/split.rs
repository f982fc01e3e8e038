//! The families of a live split, which are absent without one.

use std::fmt;

use lapwing_metrics::defs;
use lapwing_metrics::exposition::{Encoder, count, family, gauge};
use lapwing_shadow::split::SplitStatus;

/// The share in force, and where requests went.
pub(crate) fn encode(split: &SplitStatus, encoder: &mut dyn Encoder) -> fmt::Result {
    let candidate = || ("candidate", split.candidate.as_str());
    family(encoder, &defs::SPLIT_SHARE, |metric| gauge(metric, vec![candidate()], split.share))?;
    family(encoder, &defs::SPLIT_STOPPED, |metric| gauge(metric, vec![candidate()], u64::from(split.is_stopped)))?;
    family(encoder, &defs::SPLIT_REQUESTS, |metric| {
        split.assigned.iter().try_for_each(|(to, n)| count(metric, vec![candidate(), ("side", to.name())], *n))
    })?;
    family(encoder, &defs::SPLIT_JUDGED, |metric| count(metric, vec![candidate()], split.judged))
}
