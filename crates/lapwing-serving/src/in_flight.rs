//! One inference request from arrival to answer, REST or gRPC. It is counted exactly once, with the outcome it ends with.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::catalogue::CatalogueEntry;
use super::deadline::{RequestTimeout, before};
use super::error::Outcome;
use super::error::RequestError;
use super::limits::Limits;
use super::metrics::StageTimes;
use lapwing_engine::clock;
use lapwing_ledger::Stamp;
use lapwing_model::service::{About, Answer, Call, Servable};
use lapwing_plan::tensor::Tensor;

/// A decoded request to a model.
#[derive(Debug)]
pub(crate) struct InferenceRequest {
    pub(crate) inputs: Vec<Tensor>,
    /// The names of the requested outputs; empty for all.
    pub(crate) outputs: Vec<String>,
    pub(crate) timeout: RequestTimeout,
}

/// A request that is being answered. If it is dropped before it ended, the client has disconnected: it is counted as cancelled.
#[derive(Debug)]
pub(crate) struct InFlightInference {
    entry: Arc<CatalogueEntry>,
    arrival: Stamp,
    ended: Option<Outcome>,
    _slot: OwnedSemaphorePermit,
}

impl InFlightInference {
    /// Starts a request that arrived at `arrival`, and counts it.
    ///
    /// # Errors
    ///
    /// [`RequestError::Busy`] where as many requests are in flight as the limit allows.
    pub(crate) fn begin(
        entry: &Arc<CatalogueEntry>,
        arrival: Stamp,
        slots: &Arc<Semaphore>,
        limits: &Limits,
    ) -> Result<Self, RequestError> {
        let entry = Arc::clone(entry);
        entry.tallies.begin();
        match Arc::clone(slots).try_acquire_owned() {
            Ok(permit) => Ok(Self { entry, arrival, ended: None, _slot: permit }),
            Err(_) => {
                entry.tallies.end(Outcome::Full);
                Err(RequestError::Busy { limit: limits.max_in_flight })
            }
        }
    }

    /// The model's metadata.
    pub(crate) fn about(&self) -> &About {
        self.entry.model.about()
    }

    /// The model.
    pub(crate) fn model(&self) -> Arc<dyn Servable> {
        Arc::clone(&self.entry.model)
    }

    /// Calls the model, and waits for its answer until the request's deadline.
    pub(crate) async fn call(&self, asked: InferenceRequest, limits: &Limits) -> Result<Answer, RequestError> {
        let deadline = asked.timeout.deadline(self.arrival, limits.timeout);
        // the engine has its own clock, so the deadline is passed as the remaining time
        let left = deadline.map(|deadline| clock::Stamp::now().plus(deadline.since(Stamp::now())));
        let call = Call { inputs: asked.inputs, outputs: asked.outputs, deadline: left };
        Ok(before(deadline, self.entry.model.infer(call)).await??)
    }

    /// Counts the request as answered.
    pub(crate) fn answered(mut self, spent: &StageTimes, answer: &Answer) {
        self.entry.tallies.answered(spent, &answer.batch);
        self.ended = Some(Outcome::Ok);
    }

    /// Counts the request as failed, by the reason.
    pub(crate) fn failed(mut self, error: &RequestError) {
        self.ended = Some(error.outcome());
    }
}

impl Drop for InFlightInference {
    fn drop(&mut self) {
        self.entry.tallies.end(self.ended.unwrap_or(Outcome::Cancelled));
    }
}
