//! A served model: calls wait in its queue, and its own thread takes them out in batches and runs them. The forward pass itself may
//! use more threads.

#[cfg(test)]
mod tests;
mod warm;
mod worker;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use futures_channel::oneshot;
use parking_lot::Mutex;
use smallvec::SmallVec;

use self::worker::{ServedState, Waiter, Worker};
use crate::batch::{CallCost, Config, Item, Queue, QueueError};
use crate::model::Model;
use crate::service::{About, Answer, Call, CallError, Pending, Placement, Servable, WarmLine};
use lapwing_engine::clock::Stamp;

/// Bytes of the stack of a model's thread: some kernels need 2 MiB in a build without optimisations.
const STACK: usize = 16 << 20;

/// A model with its queue and its thread. Dropping it ends the thread, after the waiting calls.
#[derive(Debug)]
pub struct Served {
    about: About,
    model: Arc<Model>,
    queue: Arc<Queue<Waiter>>,
    state: Arc<ServedState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Served {
    /// Starts the thread, which warms the model up and then takes calls. `cpu` pins the thread to this processor.
    ///
    /// # Errors
    ///
    /// If the operating system starts no thread.
    pub fn start(name: &str, version: &str, model: Model, config: Config, cpu: Option<usize>) -> io::Result<Self> {
        Self::start_in(ServedState::default(), name, version, model, config, cpu)
    }

    fn start_in(
        state: ServedState,
        name: &str,
        version: &str,
        model: Model,
        config: Config,
        cpu: Option<usize>,
    ) -> io::Result<Self> {
        let about = About {
            name: name.to_owned(),
            version: version.to_owned(),
            executor: model.executor(),
            unsupported: model.unsupported().map(ToString::to_string),
            inputs: model.inputs().to_vec(),
            outputs: model.outputs().to_vec(),
        };
        // rows that may touch one another stay apart
        let config = if model.batches() { config } else { Config { max_calls: 1, ..config } };
        let (model, queue) = (Arc::new(model), Arc::new(Queue::new(config)));
        let state = Arc::new(state);
        let worker = Worker::new(about.clone(), model.clone(), queue.clone(), state.clone(), config);
        let thread = std::thread::Builder::new().name(format!("engine-{name}")).stack_size(STACK).spawn(move || {
            worker.run(|| hold(cpu));
        })?;
        Ok(Self { about, model, queue, state, thread: Mutex::new(Some(thread)) })
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// How many calls wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Closes the queue and blocks until the waiting calls are answered.
    pub fn stop(&self) {
        self.state.set_warm(false);
        self.queue.close();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!(model = self.about.name, "the model's thread panicked");
        }
    }

    fn submit(&self, mut call: Call) -> Result<oneshot::Receiver<Result<Answer, CallError>>, CallError> {
        if let Some(fault) = self.state.fault() {
            return Err(fault);
        }
        if !self.state.is_ready() {
            return Err(CallError::NotReady { reason: "is not warm yet, or is being stopped".into() });
        }
        let work = self.model.accept(&mut call.inputs)?;
        let outputs = self.wanted(&call.outputs)?;
        let (answer, receiver) = oneshot::channel();
        let tokens = if self.model.has_tokens() { work.executed } else { 0 };
        let item = Item {
            payload: Waiter { inputs: call.inputs, outputs, work, answer },
            cost: CallCost { rows: work.rows, tokens },
            arrived: Stamp::now(),
            deadline: call.deadline,
        };
        self.queue.push(item).map_err(|refused| match refused {
            QueueError::Full { waiting } => CallError::Full { waiting },
            // a device that fails closes the queue
            QueueError::Closed => self.state.fault().unwrap_or_else(|| CallError::NotReady { reason: "is being stopped".into() }),
        })?;
        Ok(receiver)
    }

    /// The indices of the outputs with these names.
    fn wanted(&self, names: &[String]) -> Result<SmallVec<[usize; 4]>, CallError> {
        let outputs = &self.about.outputs;
        if names.is_empty() {
            return Ok((0..outputs.len()).collect());
        }
        let place = |name: &String| {
            outputs.iter().position(|output| output.name == *name).ok_or_else(|| {
                let known: Vec<_> = outputs.iter().map(|output| output.name.as_str()).collect();
                CallError::Input { tensor: "outputs".into(), reason: format!("the model has no `{name}`; it has {known:?}") }
            })
        };
        names.iter().map(place).collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Servable for Served {
    fn about(&self) -> &About {
        &self.about
    }

    fn placement(&self) -> Arc<Placement> {
        self.state.ended().cloned().unwrap_or_else(|| self.model.placement())
    }

    fn is_ready(&self) -> bool {
        self.state.is_ready()
    }

    fn warm_line(&self) -> Option<WarmLine> {
        self.state.line.get().copied()
    }

    fn infer(&self, call: Call) -> Pending {
        let submitted = self.submit(call);
        Box::pin(async move {
            let stopped = |_| CallError::Failed { reason: "its thread ended before the call was answered".into() };
            submitted?.await.map_err(stopped)?
        })
    }
}

fn hold(cpu: Option<usize>) {
    if let Some(Err(error)) = cpu.map(lapwing_engine::cpu::threads::pin) {
        tracing::warn!(%error, "the model's thread runs where the system puts it");
    }
}
