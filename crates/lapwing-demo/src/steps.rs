//! The steps of one request in the demo's handler, from the handler that runs them to the spans that report them.
//!
//! They travel beside the Open Inference Protocol, in a task-local of the request's task: neither the protocol's server nor the
//! engine's interface has a place for them.

use std::sync::Arc;

use arrayvec::ArrayVec;
use parking_lot::Mutex;

use super::injected::{self, Injected};
use lapwing_ledger::{Stage, Stamp};

/// A step of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Features were looked up: the number of rows, and how many of them were in the cache.
    Hydration { rows: usize, hits: usize },
    /// Texts were tokenized; padding counts as tokens.
    Preprocessing { tokens: usize },
    /// The model ran.
    Forward { rows: usize },
    /// Scores were calibrated.
    Postprocessing,
}

/// A step and when it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedStep {
    pub(crate) step: Step,
    pub(crate) start: Stamp,
    pub(crate) end: Stamp,
}

impl Step {
    /// The stage that it is.
    pub(crate) const fn stage(self) -> Stage {
        match self {
            Self::Hydration { .. } => Stage::Hydration,
            Self::Preprocessing { .. } => Stage::Preprocessing,
            Self::Forward { .. } => Stage::Forward,
            Self::Postprocessing => Stage::Postprocessing,
        }
    }
}

/// The steps of one request, in order.
pub(crate) type Steps = ArrayVec<TimedStep, 4>;

/// Records the steps of one request, and what a scenario's script added to them.
#[derive(Debug, Default)]
pub(crate) struct StepRecorder {
    steps: Mutex<Steps>,
    injected: Mutex<Injected>,
}

tokio::task_local! {
    static RECORDER: Arc<StepRecorder>;
}

impl StepRecorder {
    /// Adds a step; a fifth is ignored.
    pub(crate) fn record(&self, step: Step, start: Stamp, end: Stamp) {
        let _ = self.steps.lock().try_push(TimedStep { step, start, end });
    }

    /// The steps so far.
    pub(crate) fn steps(&self) -> Steps {
        self.steps.lock().clone()
    }

    /// Adds time that the script took in a stage.
    pub(crate) fn inject(&self, stage: Stage, ns: u64) {
        injected::add(&mut self.injected.lock(), stage, ns);
    }

    /// The time that the script took so far, by stage.
    pub(crate) fn injected(&self) -> Injected {
        self.injected.lock().clone()
    }

    /// Runs `request`; the handler that it calls finds this recorder by [`Self::current`].
    pub(crate) async fn scope<F: Future>(self: Arc<Self>, request: F) -> F::Output {
        RECORDER.scope(self, request).await
    }

    /// The recorder of the request in whose task this is called; `None` if it is not recorded.
    pub(crate) fn current() -> Option<Arc<Self>> {
        RECORDER.try_with(Arc::clone).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_recorder_is_found_in_its_own_request_only() {
        assert!(StepRecorder::current().is_none());
        let (ours, other) = (Arc::new(StepRecorder::default()), Arc::new(StepRecorder::default()));
        let record = async |step| {
            tokio::task::yield_now().await;
            let now = Stamp::now();
            (0..5).for_each(|_| StepRecorder::current().unwrap().record(step, now, now));
        };
        tokio::join!(
            Arc::clone(&ours).scope(record(Step::Postprocessing)),
            Arc::clone(&other).scope(record(Step::Forward { rows: 1 }))
        );
        assert!(ours.steps().len() == 4 && ours.steps().iter().all(|timed| timed.step == Step::Postprocessing));
        assert!(other.steps().iter().all(|timed| timed.step == Step::Forward { rows: 1 }));
    }
}
