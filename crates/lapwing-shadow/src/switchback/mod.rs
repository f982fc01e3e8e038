//! A trial of a lever that changes what neighbours meet, so that copies of single requests cannot judge it: the lever is on in some blocks of time and
//! off in others, as coins show, and blocks are compared. It stays off if it does harm.
//!
//! - `config`: the section `trial`; `lever`: what can be tried;
//! - `schedule`: when it is on; `block`: what requests show of a block; `measure`: what blocks show of the lever;
//! - `trial`: one trial; `shown`: what is shown of it; here is what starts and ends trials.
//!
//! It is beside [`split`](crate::split), because it is the same in form: it takes clients' requests as the aggregator has them, moves a switch of the data
//! plane, and its settings may change at any time. The statistics are lapwing-compare's.

mod block;
mod config;
mod lever;
mod measure;
mod schedule;
mod shown;
mod trial;

use std::sync::Arc;

pub use self::config::{Config, HarmLimits};
pub use self::lever::TrialLever;
pub use self::measure::{TrialEffect, TrialMeasure, TrialVerdict};
pub use self::shown::{BlockSide, ShownBlock, TrialSide, TrialSnapshot, TrialState, TrialStatus};

use self::trial::Trial;
use lapwing_ledger::{Ledger, Stamp};
use lapwing_proxy::Levers;
use lapwing_settings::ConfigHandle;

/// How often the configuration is looked at, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// The trial that the configuration asks for, if it does. One thread feeds it; others may read.
#[derive(Debug)]
pub struct LeverTrials {
    config: ConfigHandle<Config>,
    applied: Arc<Config>,
    levers: Levers,
    running: Option<Trial>,
    looked: Stamp,
    seed: u64,
}

impl LeverTrials {
    /// Turns `levers` as `config` says, which is looked at once a second. Trials toss coins by `seed`.
    #[must_use]
    pub fn new(config: ConfigHandle<Config>, levers: Levers, seed: u64, now: Stamp) -> Self {
        let applied = config.load();
        let mut trials = Self { config, applied, levers, running: None, looked: now, seed };
        trials.begin(now);
        trials
    }

    /// Takes the account of a client's request as it was closed.
    pub fn take(&mut self, ledger: &Ledger) {
        if let Some(trial) = &mut self.running {
            trial.take(ledger);
        }
    }

    /// Lets time pass: blocks end, and what is known is looked at.
    pub fn tick(&mut self, now: Stamp) {
        if now.since(self.looked) >= LOOK_NS {
            self.looked = now;
            let config = self.config.load();
            if *config != *self.applied {
                self.end("its settings have changed");
                self.applied = config;
                self.begin(now);
            }
        }
        if let Some(trial) = &mut self.running {
            trial.tick(now);
        }
    }

    /// What metrics say of the trial; `None` if there is none.
    #[must_use]
    pub fn status(&self) -> Option<TrialStatus> {
        self.running.as_ref().map(Trial::status)
    }

    /// Everything that is known at `now`; `None` if there is no trial.
    #[must_use]
    pub fn snapshot(&self, now: Stamp) -> Option<TrialSnapshot> {
        self.running.as_ref().map(|trial| trial.snapshot(now))
    }

    fn begin(&mut self, now: Stamp) {
        if self.applied.lever == TrialLever::Off {
            return;
        }
        let Config { lever, block, drop, max_time, .. } = &*self.applied;
        tracing::info!(lever = lever.name(), %block, %drop, %max_time, "trial: begins");
        self.running = Some(Trial::new(self.applied.clone(), self.levers.clone(), self.seed, now));
        self.seed = self.seed.wrapping_add(1);
    }

    fn end(&mut self, reason: &str) {
        if self.running.take().is_some() {
            tracing::info!(lever = self.applied.lever.name(), reason, "trial: ends; the lever is as configured");
        }
        self.applied.lever.turn(&self.levers, None);
    }
}

#[cfg(test)]
mod tests;
