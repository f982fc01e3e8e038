//! Where merged exchanges go, once they know their optimum: those of clients to the registry, those of copies to theirs, both sides
//! of a pair to the pairs, and the accounts of recorded requests to the recording. Clients' exchanges go to the access log and to the
//! diagnosis too.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::diagnosis_feed::DiagnosisFeed;
use crate::app::access_log::AccessLog;
use lapwing_diagnosis::cost::DebtAssessor;
use lapwing_dispatch::DispatchLearning;
use lapwing_ledger::{Exchange, Ledger, Outcome, Stamp};
use lapwing_metrics::Registry;
use lapwing_shadow::recording::RecordAccounts;
use lapwing_shadow::split::LiveSplit;
use lapwing_shadow::switchback::LeverTrials;
use lapwing_shadow::{PairHalf, PairTable, ShadowParts};
use lapwing_telemetry::TailSampler;

/// Everything that merged exchanges go to.
pub(crate) struct Destinations {
    pub(crate) registry: Arc<Mutex<Registry>>,
    pub(crate) shadow: Option<ShadowParts>,
    /// For the accounts of recorded requests.
    pub(crate) records: Option<Arc<RecordAccounts>>,
    pub(crate) access_log: Option<AccessLog>,
    /// Chooses what is sent as traces.
    pub(crate) sampler: Option<Mutex<TailSampler>>,
    /// Hands clients' exchanges to the diagnostician.
    pub(crate) diagnosis: Option<Mutex<DiagnosisFeed>>,
    /// What judges and moves levers.
    pub(crate) levers: LeverFeeds,
    pub(crate) assessor: DebtAssessor,
}

/// What judges and moves the levers of the data plane, by what clients' requests show.
#[derive(Clone, Default)]
pub(crate) struct LeverFeeds {
    /// Judges the candidate of a live split.
    pub(crate) split: Option<Arc<Mutex<LiveSplit>>>,
    /// Turns the lever on trial.
    pub(crate) trials: Option<Arc<Mutex<LeverTrials>>>,
    /// Learns what requests take.
    pub(crate) dispatch: Option<Arc<Mutex<DispatchLearning>>>,
}

impl Destinations {
    /// Locks the tables for one round of the aggregator.
    pub(crate) fn lock(&self, now: Stamp) -> Kept<'_> {
        let sampler = self.sampler.as_ref().map(Mutex::lock);
        let diagnosis = self.diagnosis.as_ref().map(Mutex::lock);
        let split = self.levers.split.as_ref().map(|split| split.lock());
        let trials = self.levers.trials.as_ref().map(|trials| trials.lock());
        let dispatch = self.levers.dispatch.as_ref().map(|dispatch| dispatch.lock());
        let copies = self.shadow.as_ref().map(Copies::lock);
        Kept { registry: self.registry.lock(), copies, sampler, diagnosis, split, trials, dispatch, to: self, now }
    }
}

/// The tables, locked for one round of the aggregator.
pub(crate) struct Kept<'l> {
    pub(crate) registry: MutexGuard<'l, Registry>,
    copies: Option<Copies<'l>>,
    sampler: Option<MutexGuard<'l, TailSampler>>,
    diagnosis: Option<MutexGuard<'l, DiagnosisFeed>>,
    split: Option<MutexGuard<'l, LiveSplit>>,
    trials: Option<MutexGuard<'l, LeverTrials>>,
    dispatch: Option<MutexGuard<'l, DispatchLearning>>,
    to: &'l Destinations,
    now: Stamp,
}

struct Copies<'l> {
    registry: MutexGuard<'l, Registry>,
    pairs: MutexGuard<'l, PairTable>,
}

impl<'l> Copies<'l> {
    fn lock(shadow: &'l ShadowParts) -> Self {
        Self { registry: shadow.registry.lock(), pairs: shadow.pairs.lock() }
    }
}

impl Kept<'_> {
    /// Records an exchange. `behind` more wait to be recorded.
    pub(crate) fn accept_exchange(&mut self, mut exchange: Exchange, behind: usize) {
        self.assess(&mut exchange);
        if exchange.ledger.is_recorded {
            self.record(&exchange);
        }
        match &mut self.copies {
            Some(copies) if exchange.ledger.is_copy => {
                // nobody leaves a copy but the one who sent it, when its time is over
                if exchange.ledger.outcome == Outcome::Cancelled {
                    exchange.ledger.outcome = Outcome::TimedOut;
                }
                copies.pairs.copy(&exchange, self.now);
                copies.registry.record_recent(exchange, self.now, behind);
            }
            copies => {
                if let Some(copies) = copies {
                    copies.pairs.primary(&exchange, self.now);
                }
                if let Some(split) = &mut self.split {
                    split.take(&exchange, self.now);
                }
                if let Some(log) = &self.to.access_log {
                    log.push(&exchange);
                }
                if let Some(sampler) = &mut self.sampler {
                    sampler.offer(&exchange, self.now);
                }
                if let Some(diagnosis) = &mut self.diagnosis {
                    diagnosis.record(&exchange, self.now);
                }
                self.registry.record_recent(exchange, self.now, behind);
            }
        }
    }

    /// Notes its optimum on an exchange, and how long it may take by the settings.
    fn assess(&self, exchange: &mut Exchange) {
        self.registry.note_deadline(exchange);
        let series = exchange.ledger.series;
        let pairs = self.copies.as_ref().map(|copies| &copies.pairs);
        self.to.assessor.assess(exchange, |target| pairs.is_some_and(|pairs| pairs.runs_same_model(target, &series)));
    }

    /// Sends the account of a recorded request to the recording.
    fn record(&self, exchange: &Exchange) {
        if let (Some(records), Some(pair), Some(half)) = (&self.to.records, exchange.ledger.pair, PairHalf::of_primary(exchange))
        {
            records.push(pair, half);
        }
    }

    /// Records what late spans add. A pair keeps the figures that it was recorded with.
    pub(crate) fn mend(&mut self, mut exchange: Exchange) {
        self.assess(&mut exchange);
        match &mut self.copies {
            Some(copies) if exchange.ledger.is_copy => copies.registry.mend(exchange),
            _ => self.registry.mend(exchange),
        }
    }

    /// Takes the results of comparisons that wait, and lets time pass for the pairs.
    pub(crate) fn tick_pairs(&mut self) {
        let (Some(copies), Some(shadow)) = (&mut self.copies, &self.to.shadow) else { return };
        for _ in 0..shadow.compared.len() {
            let Some(result) = shadow.compared.pop() else { break };
            copies.pairs.outputs(result.pair, result.target, result.verdict.result, self.now);
            if let Some((split, key)) = self.split.as_mut().zip(result.split_key) {
                split.take_outputs(key, result.verdict.result, self.now);
            }
            if let Some(sampler) = self.sampler.as_mut().filter(|_| result.verdict.result.is_mismatch()) {
                sampler.mismatch(result.pair);
            }
            if let Some(greatest_error) = result.verdict.greatest_error {
                copies.pairs.difference(result.pair, result.target, greatest_error);
            }
        }
        copies.pairs.tick(self.now);
    }

    /// Forgets what was kept of routes and models whose names gave way.
    pub(crate) fn forget_unnamed(&mut self) {
        self.registry.retire_unnamed();
        if let Some(copies) = &mut self.copies {
            copies.registry.retire_unnamed();
            copies.pairs.retain_named(self.registry.labels());
        }
        self.to.assessor.retain_named();
        if let Some(split) = &mut self.split {
            split.retain_named();
        }
        if let Some(diagnosis) = &mut self.diagnosis {
            diagnosis.retain_named();
        }
        if let Some(dispatch) = &mut self.dispatch {
            let labels = self.registry.labels();
            dispatch.retain(|series| labels.routes.holds(series.route) && labels.models.holds(series.model));
        }
    }

    /// Tells the forwarder whether a closed ledger will be sent as a trace: its spans may come before it is merged.
    pub(crate) fn foresee(&self, ledger: &Ledger) {
        if let Some(sampler) = &self.sampler {
            sampler.foresee(ledger);
        }
    }

    /// Sends the slowest of a minute that is over.
    pub(crate) fn tick_sampler(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.tick(self.now);
        }
    }

    /// Shows a closed ledger to the trial and to the queue of dispatch, before it waits for spans: they do not.
    pub(crate) fn try_out(&mut self, ledger: &Ledger) {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.take(ledger);
        }
        if let Some(trials) = &mut self.trials {
            trials.take(ledger);
        }
    }

    /// Lets time pass for the live split and the trial.
    pub(crate) fn tick_split_and_trial(&mut self) {
        if let Some(split) = &mut self.split {
            split.tick(self.now);
        }
        if let Some(trials) = &mut self.trials {
            trials.tick(self.now);
        }
    }

    /// Lets time pass for the diagnosis, and records what waited for it.
    pub(crate) fn tick_diagnosis(&mut self) {
        if let Some(diagnosis) = &mut self.diagnosis {
            diagnosis.tick(self.now);
        }
    }

    /// Sends the slowest of the last minute, at the end.
    pub(crate) fn flush_sampler(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.flush();
        }
    }

    /// Advances windows.
    pub(crate) fn rotate(&mut self) {
        self.registry.rotate(self.now);
        if let Some(copies) = &mut self.copies {
            copies.registry.rotate(self.now);
        }
    }
}
