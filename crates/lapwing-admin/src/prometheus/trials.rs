//! The families of a trial, which are absent without one.

use std::fmt;

use lapwing_metrics::defs;
use lapwing_metrics::exposition::{Encoder, count, family, gauge};
use lapwing_shadow::switchback::TrialStatus;

/// Whether the lever is on, and what was counted.
pub(crate) fn encode(trial: &TrialStatus, encoder: &mut dyn Encoder) -> fmt::Result {
    let lever = || ("lever", trial.lever);
    family(encoder, &defs::TRIAL_ON, |metric| gauge(metric, vec![lever()], u64::from(trial.is_on)))?;
    family(encoder, &defs::TRIAL_STOPPED, |metric| gauge(metric, vec![lever()], u64::from(trial.is_stopped)))?;
    family(encoder, &defs::TRIAL_BLOCKS, |metric| {
        trial.blocks.iter().try_for_each(|(side, n)| count(metric, vec![lever(), ("side", side.name())], *n))
    })?;
    family(encoder, &defs::TRIAL_REQUESTS, |metric| {
        trial.requests.iter().try_for_each(|(side, n)| count(metric, vec![lever(), ("side", side)], *n))
    })
}
