//! A model run by rten, call by call: models that have no plan, where ONNX Runtime is not found.
//!
//! rten holds whole numbers and truths in 32 bits and all others in single precision, and reads some nodes otherwise than ONNX says.
//! `prepare` writes a file anew so that what it computes is what the file means, and refuses what it would compute wrongly; `values`
//! hands tensors over and back in the types of the file.

mod constants;
mod cubic;
mod external;
mod fused;
mod known;
mod lengths;
mod nodes;
mod prepare;
mod quantized;
mod quantized_lstm;
mod rewrite;
#[cfg(test)]
mod tests;
mod values;
mod words;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::rten::{LoadError, LoadErrorKind, Model, ModelOptions as LoadOptions, NodeId, RunOptions, ThreadPool, ValueOrView};

use self::prepare::Prepared;
use super::batch::BatchResult;
use super::executor::{Executor, ExecutorName, Workspace};
use super::options::ModelOptions;
use super::ports::Ports;
use lapwing_engine::clock::Stamp;
use lapwing_engine::cpu::threads::Threads;
use lapwing_engine::placement::{Fallback, Placement};
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, OnnxFile};

/// A model in rten.
pub(crate) struct RtenExecutor {
    model: Model,
    ports: Ports,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    /// Operators by the names of their nodes, for messages.
    operators: HashMap<String, String>,
    threads: Arc<Threads>,
    notes: Vec<String>,
    placement: Arc<Placement>,
}

impl std::fmt::Debug for RtenExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RtenExecutor").field("model", &self.model).finish_non_exhaustive()
    }
}

impl RtenExecutor {
    /// Loads a file whose inputs and outputs are `ports`. `fallback` says why no GPU runs it, if one was looked for.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the node that rten does not run as ONNX says, its operator, its set and the reason.
    pub(crate) fn new(
        file: &OnnxFile,
        ports: Ports,
        options: &ModelOptions,
        fallback: Option<Fallback>,
    ) -> Result<Self, EngineError> {
        file.check()?;
        values::check(&ports)?;
        let Prepared { bytes, external, operators, mut notes } = prepare::prepare(file)?;
        // it packs weights in the pool that all models share
        ::rten::thread_pool().run(|| options.plan.threads.hold_current_pool());
        let model = match load(bytes, external, true)? {
            Ok(model) => model,
            // its optimiser fails where two outputs are the same tensor, and the like
            Err(error) if error.kind() == LoadErrorKind::OptimizeError => {
                let Prepared { bytes, external, .. } = prepare::prepare(file)?;
                let model = load(bytes, external, false)?.map_err(|error| words::load(&error, &operators))?;
                notes.push(words::short(&format!("rten runs it without optimisations: {error}")));
                model
            }
            Err(error) => return Err(words::load(&error, &operators)),
        };
        let find = |what: &str, port: &TensorSpec| {
            let missing = || EngineError::part(format!("{what} {}", port.name), "rten does not have it");
            model.find_node(&port.name).ok_or_else(missing)
        };
        let inputs = ports.inputs.iter().map(|port| find("input", port)).collect::<Result<_, _>>()?;
        let outputs = ports.outputs.iter().map(|port| find("output", port)).collect::<Result<_, _>>()?;
        let placement = Arc::new(Placement::on_cpu("fp32", fallback));
        Ok(Self { model, ports, inputs, outputs, operators, threads: Arc::clone(&options.plan.threads), notes, placement })
    }

    fn run_one(
        &self,
        threads: &Arc<ThreadPool>,
        call: &[Tensor],
        wanted: &[bool],
        ran: &mut BatchResult,
    ) -> Result<(), EngineError> {
        let began = Stamp::now();
        let inputs = self.inputs.iter().zip(call).map(|(id, tensor)| Ok((*id, values::input(tensor)?)));
        let inputs: Vec<(NodeId, ValueOrView<'_>)> = inputs.collect::<Result<_, EngineError>>()?;
        let is_wanted = |at: usize| wanted.get(at).copied().unwrap_or(true);
        let ids: Vec<NodeId> = self.outputs.iter().enumerate().filter(|(at, _)| is_wanted(*at)).map(|(_, id)| *id).collect();
        let read = Stamp::now();
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(threads)));
        let made = catch_unwind(AssertUnwindSafe(|| self.model.run(inputs, &ids, Some(options))));
        let made = match made {
            Ok(made) => made.map_err(|error| words::run(&error, &self.operators))?,
            Err(panic) => return Err(EngineError::Run { reason: format!("rten: {}", words::panic(&*panic)) }),
        };
        let done = Stamp::now();
        let mut made = made.into_iter();
        let output = |(at, port): (usize, &TensorSpec)| {
            if !is_wanted(at) {
                return Ok(Tensor {
                    name: port.name.clone(),
                    datatype: port.datatype,
                    shape: Vec::new(),
                    data: bytes::Bytes::new(),
                });
            }
            let fails = |reason: String| EngineError::Run { reason: format!("output {}: {reason}", port.name) };
            values::output(port, made.next().ok_or_else(|| fails("rten does not make it".to_owned()))?).map_err(fails)
        };
        ran.outputs.push(self.ports.outputs.iter().enumerate().map(output).collect::<Result<_, _>>()?);
        ran.preprocessing_ns += read.since(began);
        ran.forward_ns += done.since(read);
        ran.postprocessing_ns += done.elapsed();
        Ok(())
    }
}

/// Loads what was prepared.
fn load(bytes: Vec<u8>, external: Vec<(String, Vec<u8>)>, optimised: bool) -> Result<Result<Model, LoadError>, EngineError> {
    let loaded = catch_unwind(AssertUnwindSafe(|| {
        let mut options = LoadOptions::with_all_ops();
        options.enable_optimization(optimised).prepack_weights(true);
        for (name, data) in external {
            options.external_data(&name, data);
        }
        options.load(bytes)
    }));
    loaded.map_err(|panic| EngineError::part("graph", format!("rten cannot load it: {}", words::panic(&*panic))))
}

impl Executor for RtenExecutor {
    fn name(&self) -> ExecutorName {
        ExecutorName::Rten
    }

    fn inputs(&self) -> &[TensorSpec] {
        &self.ports.inputs
    }

    fn outputs(&self) -> &[TensorSpec] {
        &self.ports.outputs
    }

    fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn host(&self, workspace: &mut Workspace) -> Option<Arc<ThreadPool>> {
        Some(workspace.rten.pool(&self.threads))
    }

    /// Runs calls one after the other, because their rows may depend on one another.
    fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]], wanted: &[bool]) -> Result<BatchResult, EngineError> {
        let threads = workspace.rten.pool(&self.threads);
        let mut ran = BatchResult::default();
        calls.iter().try_for_each(|call| self.run_one(&threads, call, wanted, &mut ran))?;
        Ok(ran)
    }
}
