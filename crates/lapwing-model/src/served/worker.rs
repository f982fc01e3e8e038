//! The thread of a served model: warms it up, then takes batches and answers their calls. It ends when the queue is closed;
//! it closes the queue itself when the model's device fails. It shares with callers the calls that wait, whether the model is warm, and
//! whether its device has failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_channel::oneshot;
use smallvec::SmallVec;

use super::warm;
use crate::batch::{CallCost, Config, Item, Line, Queue, Taken};
use crate::model::{BatchResult, CallWork, Model, WantedOutputs, Workspace};
use crate::service::{About, Answer, Batched, CallError, Placement, Stages, WarmLine};
use lapwing_engine::clock::Stamp;
use lapwing_onnx::EngineError;
use lapwing_onnx::tensor::Tensor;

pub(crate) struct Worker {
    about: About,
    model: Arc<Model>,
    queue: Arc<Queue<Waiter>>,
    state: Arc<ServedState>,
    config: Config,
    workspace: Workspace,
    /// Where the last batch ran.
    placement: Arc<Placement>,
}

impl Worker {
    pub(crate) fn new(
        about: About,
        model: Arc<Model>,
        queue: Arc<Queue<Waiter>>,
        state: Arc<ServedState>,
        config: Config,
    ) -> Self {
        let placement = model.placement();
        Self { about, model, queue, state, config, workspace: Workspace::default(), placement }
    }

    /// Runs until the queue is closed and empty, in the threads of the executor where it has its own. `hold` pins the thread on which it
    /// does.
    pub(crate) fn run(mut self, hold: impl FnOnce() + Send) {
        let work = |worker: Self| {
            hold();
            worker.answer_all();
        };
        match self.model.clone().host(&mut self.workspace) {
            Some(threads) => threads.run(|| work(self)),
            None => work(self),
        }
    }

    fn answer_all(mut self) {
        let began = Stamp::now();
        let (model, queue, config) = (self.model.clone(), self.queue.clone(), self.config);
        let all: WantedOutputs = model.outputs().iter().map(|_| true).collect();
        match warm::up(&model, &config, |call| self.forward(&[call], &all), |cost, ns| queue.observe(cost, ns)) {
            Ok(runs) => tracing::info!(
                model = self.about.name,
                version = self.about.version,
                executor = self.about.executor.name(),
                device = self.placement.device,
                precision = self.placement.precision,
                runs,
                ms = began.elapsed() / 1_000_000,
                "warm"
            ),
            Err(EngineError::Device { reason }) => self.end(&reason),
            Err(error) => tracing::warn!(model = self.about.name, %error, "cannot be warmed up; the first calls will be slow"),
        }
        let of_one_size = || if model.has_only_rows() { queue.proportion() } else { None };
        if let Some(Line { fixed_ns, unit_ns }) = queue.line().or_else(of_one_size) {
            // the cell is empty: this thread alone fills it, once
            let _ = self.state.line.set(WarmLine { fixed_ns, unit_ns, counts_tokens: model.has_tokens() });
        }
        self.state.set_warm(true);
        let (mut batch, mut expired) = (Vec::new(), Vec::new());
        while self.queue.take(&mut batch, &mut expired) == Taken::Calls {
            for item in expired.drain(..) {
                let waited_ns = item.arrived.elapsed();
                answer(item.payload, Err(CallError::Deadline { waited_ns }));
            }
            while !batch.is_empty() {
                let apart = self.take_apart(&mut batch);
                self.batch(&mut batch, Stamp::now());
                if apart.is_empty() {
                    break;
                }
                batch = apart;
            }
        }
    }

    /// Takes out the calls that cannot run as one with the first: they have other lengths, and run behind it.
    fn take_apart(&self, batch: &mut Vec<Item<Waiter>>) -> Vec<Item<Waiter>> {
        let Some((first, others)) = batch.split_first() else { return Vec::new() };
        let joins = |item: &Item<Waiter>| self.model.joins(&first.payload.inputs, &item.payload.inputs);
        let joined: SmallVec<[bool; 16]> = others.iter().map(joins).collect();
        let mut joined = joined.into_iter();
        batch.extract_if(1.., |_| joined.next() == Some(false)).collect()
    }

    /// Runs a batch that was closed at `closed`, and answers its calls.
    fn batch(&mut self, batch: &mut Vec<Item<Waiter>>, closed: Stamp) {
        if let Some(fault) = self.state.fault() {
            return refuse(batch, &fault);
        }
        let calls: Vec<&[Tensor]> = batch.iter().map(|item| &item.payload.inputs[..]).collect();
        let wanted = self.wanted(batch);
        match self.forward(&calls, &wanted) {
            Ok(ran) => {
                self.queue.observe(cost(batch), ran.forward_ns);
                deliver(batch, ran, closed, &self.placement);
            }
            Err(EngineError::Device { reason }) => {
                self.end(&reason);
                refuse(batch, &CallError::Device { reason });
            }
            Err(error) if batch.len() == 1 => refuse(batch, &error.into()),
            // one call's fault must not fail the others
            Err(_) => {
                for item in batch.drain(..) {
                    self.batch(&mut vec![item], closed);
                }
            }
        }
    }

    /// Ends the model: closes the queue, and answers the waiting calls with the device's error.
    fn end(&self, reason: &str) {
        if self.state.end(&self.placement, reason) {
            let About { name, version, .. } = &self.about;
            tracing::error!(model = name, version, reason, "the device failed; the model is not ready any more");
        }
        self.queue.close();
    }

    /// Notes where the model ran last, and logs a move.
    fn note_placement(&mut self) {
        let placement = self.model.placement();
        if let Some(fallback) = placement.fallback.as_ref().filter(|fallback| self.placement.fallback.as_ref() != Some(fallback))
        {
            let About { name, version, .. } = &self.about;
            tracing::warn!(
                model = name,
                version,
                reason = fallback.cause.label(),
                "runs on the processor now: {}",
                fallback.detail
            );
        }
        self.placement = placement;
    }

    /// The outputs that at least one of these calls wants.
    fn wanted(&self, batch: &[Item<Waiter>]) -> WantedOutputs {
        let mut wanted: WantedOutputs = self.about.outputs.iter().map(|_| false).collect();
        for at in batch.iter().flat_map(|item| &item.payload.outputs) {
            if let Some(wanted) = wanted.get_mut(*at) {
                *wanted = true;
            }
        }
        wanted
    }

    /// Runs calls; a panic of an executor is an error of theirs.
    fn forward(&mut self, calls: &[&[Tensor]], wanted: &WantedOutputs) -> Result<BatchResult, EngineError> {
        #[cfg(test)]
        if let Some(reason) = self.state.breaks.lock().clone() {
            return Err(EngineError::Device { reason });
        }
        let ran = catch_unwind(AssertUnwindSafe(|| self.model.run_for(&mut self.workspace, calls, wanted)));
        self.note_placement();
        ran.unwrap_or_else(|_| {
            self.workspace = Workspace::default();
            Err(EngineError::Run { reason: "the executor panicked".into() })
        })
    }
}

fn cost(batch: &[Item<Waiter>]) -> CallCost {
    batch.iter().fold(CallCost::default(), |sum, item| sum.plus(item.cost))
}

fn deliver(batch: &mut Vec<Item<Waiter>>, ran: BatchResult, closed: Stamp, placement: &Arc<Placement>) {
    let batched = batch.iter().fold(Batched { calls: batch.len(), ..Batched::default() }, |sum, item| {
        let work = item.payload.work;
        let (flops, useful_flops) = work.flops.unzip();
        Batched {
            rows: sum.rows + work.rows,
            executed: sum.executed + work.executed,
            useful: sum.useful + work.useful,
            flops: flops.map(|flops| sum.flops.unwrap_or(0) + flops),
            useful_flops: useful_flops.map(|flops| sum.useful_flops.unwrap_or(0) + flops),
            ..sum
        }
    });
    for (item, outputs) in batch.drain(..).zip(ran.outputs) {
        let outputs = item.payload.outputs.iter().filter_map(|at| outputs.get(*at).cloned()).collect();
        let stages = Stages {
            queue_ns: closed.since(item.arrived),
            preprocessing_ns: ran.preprocessing_ns,
            forward_ns: ran.forward_ns,
            postprocessing_ns: ran.postprocessing_ns,
        };
        answer(item.payload, Ok(Answer { outputs, stages, batch: batched, placement: Arc::clone(placement) }));
    }
}

/// Answers every call with the same error.
fn refuse(batch: &mut Vec<Item<Waiter>>, fault: &CallError) {
    batch.drain(..).for_each(|item| answer(item.payload, Err(fault.clone())));
}

/// Sends the answer; a caller that has gone away is ignored.
fn answer(waiter: Waiter, outcome: Result<Answer, CallError>) {
    drop(waiter.answer.send(outcome));
}

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) inputs: Vec<Tensor>,
    /// The wanted outputs, by their index in the model.
    pub(crate) outputs: SmallVec<[usize; 4]>,
    pub(crate) work: CallWork,
    pub(crate) answer: oneshot::Sender<Result<Answer, CallError>>,
}

/// Shared by the thread and the callers.
#[derive(Debug, Default)]
pub(crate) struct ServedState {
    warm: AtomicBool,
    /// What warm-up measured.
    pub(crate) line: OnceLock<WarmLine>,
    /// The placement when the device failed; it is final.
    ended: OnceLock<Arc<Placement>>,
    /// Tests only: the device error with which every run fails.
    #[cfg(test)]
    pub(crate) breaks: parking_lot::Mutex<Option<String>>,
}

impl ServedState {
    /// Whether calls are taken.
    pub(crate) fn is_ready(&self) -> bool {
        self.warm.load(Ordering::Acquire) && self.ended.get().is_none()
    }

    pub(crate) fn set_warm(&self, is_warm: bool) {
        self.warm.store(is_warm, Ordering::Release);
    }

    /// Records the placement when the device failed. Returns whether this is the first failure.
    pub(crate) fn end(&self, placement: &Placement, reason: &str) -> bool {
        self.ended.set(Arc::new(Placement { fault: Some(reason.to_owned()), ..placement.clone() })).is_ok()
    }

    /// The placement if the device has failed.
    pub(crate) fn ended(&self) -> Option<&Arc<Placement>> {
        self.ended.get()
    }

    /// The error of every call once the device has failed.
    pub(crate) fn fault(&self) -> Option<CallError> {
        let reason = self.ended.get()?.fault.clone()?;
        Some(CallError::Device { reason })
    }
}
