//! The thread of a served model: warms it up, then takes batches and answers their calls. It ends only when the queue is closed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Waiter, told, warm};
use crate::engine::EngineError;
use crate::engine::batch::{Config, Cost, Item, Queue, Taken};
use crate::engine::model::{Model, Ran, Workspace};
use crate::engine::service::{About, Answer, Batched, CallError, Stages};
use crate::engine::tensor::Tensor;
use crate::ledger::Stamp;

pub(super) struct Worker {
    about: About,
    model: Arc<Model>,
    queue: Arc<Queue<Waiter>>,
    config: Config,
    workspace: Workspace,
}

impl Worker {
    pub(super) fn new(about: About, model: Arc<Model>, queue: Arc<Queue<Waiter>>, config: Config) -> Self {
        Self { about, model, queue, config, workspace: Workspace::default() }
    }

    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self, ready: &AtomicBool) {
        let began = Stamp::now();
        match warm::up(&self.model, &mut self.workspace, &self.config, |cost, ns| self.queue.observe(cost, ns)) {
            Ok(runs) => tracing::info!(
                model = self.about.name,
                version = self.about.version,
                executor = self.about.executor,
                runs,
                ms = began.elapsed() / 1_000_000,
                "warm"
            ),
            Err(error) => tracing::warn!(model = self.about.name, %error, "cannot be warmed up; the first calls will be slow"),
        }
        ready.store(true, Ordering::Release);
        let (mut batch, mut expired) = (Vec::new(), Vec::new());
        while self.queue.take(&mut batch, &mut expired) == Taken::Calls {
            for item in expired.drain(..) {
                let waited_ns = item.arrived.elapsed();
                answer(item.payload, Err(CallError::Deadline { waited_ns }));
            }
            if !batch.is_empty() {
                self.batch(&mut batch);
            }
        }
    }

    fn batch(&mut self, batch: &mut Vec<Item<Waiter>>) {
        let closed = Stamp::now();
        let calls: Vec<&[Tensor]> = batch.iter().map(|item| &item.payload.inputs[..]).collect();
        match self.forward(&calls) {
            Ok(ran) => {
                self.queue.observe(cost(batch), ran.forward_ns);
                deliver(batch, ran, closed);
            }
            Err(error) if batch.len() == 1 => batch.drain(..).for_each(|item| answer(item.payload, Err(told(&error)))),
            // the fault of one of them must not be that of the others
            Err(_) => {
                for item in batch.drain(..) {
                    let mut alone = vec![item];
                    match self.forward(&[&alone[0].payload.inputs]) {
                        Ok(ran) => deliver(&mut alone, ran, closed),
                        Err(error) => alone.drain(..).for_each(|item| answer(item.payload, Err(told(&error)))),
                    }
                }
            }
        }
    }

    /// Runs calls; a panic of an executor is an error of theirs.
    fn forward(&mut self, calls: &[&[Tensor]]) -> Result<Ran, EngineError> {
        let ran = catch_unwind(AssertUnwindSafe(|| self.model.run(&mut self.workspace, calls)));
        ran.unwrap_or_else(|_| {
            self.workspace = Workspace::default();
            Err(EngineError::Run { reason: "the executor panicked".into() })
        })
    }
}

fn cost(batch: &[Item<Waiter>]) -> Cost {
    batch.iter().fold(Cost::default(), |sum, item| sum.plus(item.cost))
}

fn deliver(batch: &mut Vec<Item<Waiter>>, ran: Ran, closed: Stamp) {
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
        answer(item.payload, Ok(Answer { outputs, stages, batch: batched }));
    }
}

/// A caller that is gone is not missed.
fn answer(waiter: Waiter, outcome: Result<Answer, CallError>) {
    drop(waiter.answer.send(outcome));
}
