//! One inference request from its arrival to its answer, whatever the protocol: counted once, however it ends.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::catalogue::Entry;
use super::deadline::{Patience, until};
use super::limits::Limits;
use super::metrics::{Outcome, Spent};
use super::refusal::Refusal;
use crate::ledger::Stamp;
use lapwing_engine::clock;
use lapwing_engine::service::{About, Answer, Call, Servable};
use lapwing_engine::tensor::Tensor;

/// What a request asks of a model.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) inputs: Vec<Tensor>,
    /// The outputs that are wanted; none for all.
    pub(super) outputs: Vec<String>,
    pub(super) patience: Patience,
}

/// A request that is being answered. Dropped before it ended, its client has gone away.
#[derive(Debug)]
pub(super) struct Flight {
    entry: Arc<Entry>,
    arrival: Stamp,
    ended: Option<Outcome>,
    _room: OwnedSemaphorePermit,
}

impl Flight {
    /// Of a request that came at `arrival`.
    pub(super) fn begin(entry: &Arc<Entry>, arrival: Stamp, room: &Arc<Semaphore>, limits: &Limits) -> Result<Self, Refusal> {
        let entry = Arc::clone(entry);
        entry.tallies.begin();
        match Arc::clone(room).try_acquire_owned() {
            Ok(permit) => Ok(Self { entry, arrival, ended: None, _room: permit }),
            Err(_) => {
                entry.tallies.end(Outcome::Full);
                Err(Refusal::Busy { limit: limits.max_in_flight })
            }
        }
    }

    /// What the model says about itself.
    pub(super) fn about(&self) -> &About {
        self.entry.model.about()
    }

    /// The model.
    pub(super) fn model(&self) -> Arc<dyn Servable> {
        Arc::clone(&self.entry.model)
    }

    /// Calls the model.
    pub(super) async fn call(&self, asked: Asked, limits: &Limits) -> Result<Answer, Refusal> {
        let deadline = asked.patience.deadline(self.arrival, limits.timeout);
        // the engine has a clock of its own
        let left = deadline.map(|deadline| clock::Stamp::now().plus(deadline.since(Stamp::now())));
        let call = Call { inputs: asked.inputs, outputs: asked.outputs, deadline: left };
        Ok(until(deadline, self.entry.model.infer(call)).await??)
    }

    /// The answer is made: counts it.
    pub(super) fn answered(mut self, spent: &Spent, answer: &Answer) {
        self.entry.tallies.answered(spent, &answer.batch);
        self.ended = Some(Outcome::Ok);
    }

    /// There will be no answer: counts why.
    pub(super) fn refused(mut self, refusal: &Refusal) {
        self.ended = Some(refusal.outcome());
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.entry.tallies.end(self.ended.unwrap_or(Outcome::Cancelled));
    }
}
