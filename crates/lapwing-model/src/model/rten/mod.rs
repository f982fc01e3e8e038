//! A model run by rten, call by call: models that have no plan, where ONNX Runtime is not found.
//!
//! rten holds whole numbers and truths in 32 bits and all others in single precision, and reads some nodes otherwise than ONNX says.
//! `prepare` writes a file anew so that what it computes is what the file means, and refuses what it would compute wrongly; `values`
//! hands tensors over and back in the types of the file.

mod constants;
mod cubic;
mod external;
mod fused;
pub(crate) mod images;
mod known;
mod lengths;
mod load;
mod nodes;
mod prepare;
mod quantized;
mod quantized_lstm;
mod rewrite;
mod stage;
mod table;
#[cfg(test)]
mod tests;
mod values;
mod words;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::rten::ThreadPool;

use self::images::divide::{Divided, Stage, divide};
use self::prepare::Prepared;
use self::stage::LoadedStage;
use self::table::Table;
use super::batch::BatchResult;
use super::executor::{Executor, ExecutorName, Workspace};
use super::image_memory::ImageMemory;
use super::options::ModelOptions;
use super::ports::Ports;
use lapwing_engine::clock::Stamp;
use lapwing_engine::cpu::threads::Threads;
use lapwing_engine::placement::{Fallback, Placement};
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, OnnxFile};

/// A model in rten.
pub(crate) struct RtenExecutor {
    stages: Vec<LoadedStage>,
    ports: Ports,
    /// Places of the inputs and outputs in the table of a run, and how many it has.
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    places: usize,
    /// Outputs that no stage reads: they are made only if they are wanted.
    last: HashSet<usize>,
    /// Operators by the names of their nodes, for messages.
    operators: HashMap<String, String>,
    threads: Arc<Threads>,
    notes: Vec<String>,
    placement: Arc<Placement>,
}

impl std::fmt::Debug for RtenExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RtenExecutor").field("stages", &self.stages).finish_non_exhaustive()
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
        let Prepared { model, mut external, operators, mut notes } = prepare::prepare(file)?;
        // it packs weights in the pool that all models share
        ::rten::thread_pool().run(|| options.plan.threads.hold_current_pool());
        let names = |ports: &'_ [TensorSpec]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
        let (reads, makes) = (names(&ports.inputs), names(&ports.outputs));
        let Divided { mut stages, inputs, outputs, places } = divide(model, &external, &reads, &makes);
        let read: HashSet<usize> = stages.iter().flat_map(Stage::read_places).collect();
        let last = outputs.iter().copied().filter(|place| !read.contains(place)).collect();
        let named: Vec<HashSet<String>> = stages.iter_mut().map(Stage::weight_files).collect::<Result<_, _>>()?;
        let load = |(at, stage): (usize, Stage)| {
            // files may be as large as memory allows: each is copied for a stage only if a later one needs it too
            let mut of_stage = Vec::new();
            for (name, data) in external.iter_mut().filter(|(name, _)| named[at].contains(name)) {
                let is_last = !named[at + 1..].iter().any(|later| later.contains(name));
                of_stage.push((name.clone(), if is_last { std::mem::take(data) } else { data.clone() }));
            }
            LoadedStage::load(stage, file, of_stage, &operators, &mut notes)
        };
        let stages = stages.into_iter().enumerate().map(load).collect::<Result<_, _>>()?;
        let placement = Arc::new(Placement::on_cpu("fp32", fallback));
        Ok(Self {
            stages,
            ports,
            inputs,
            outputs,
            places,
            last,
            operators,
            threads: Arc::clone(&options.plan.threads),
            notes,
            placement,
        })
    }

    fn run_one(
        &self,
        threads: &Arc<ThreadPool>,
        memory: &mut ImageMemory,
        call: &[Tensor],
        wanted: &[bool],
        ran: &mut BatchResult,
    ) -> Result<(), EngineError> {
        let began = Stamp::now();
        let mut table = Table::new(self.places, memory);
        for (place, tensor) in self.inputs.iter().zip(call) {
            table.values.insert(*place, values::input(tensor)?);
        }
        let is_wanted = |at: usize| wanted.get(at).copied().unwrap_or(true);
        let unwanted = self.outputs.iter().enumerate().filter(|(at, place)| !is_wanted(*at) && self.last.contains(place));
        let unwanted: Vec<usize> = unwanted.map(|(_, place)| *place).collect();
        let read = Stamp::now();
        let run = || self.stages.iter().try_for_each(|stage| table.run(stage, threads, &unwanted, &self.operators));
        match catch_unwind(AssertUnwindSafe(|| threads.run(run))) {
            Ok(made) => made?,
            Err(panic) => return Err(EngineError::Run { reason: format!("rten: {}", words::panic(&*panic)) }),
        }
        let done = Stamp::now();
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
            let made = table.output(self.outputs[at]).ok_or_else(|| fails("rten does not make it".to_owned()))?;
            values::output(port, made).map_err(fails)
        };
        ran.outputs.push(self.ports.outputs.iter().enumerate().map(output).collect::<Result<_, _>>()?);
        ran.preprocessing_ns += read.since(began);
        ran.forward_ns += done.since(read);
        ran.postprocessing_ns += done.elapsed();
        Ok(())
    }
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
        calls.iter().try_for_each(|call| self.run_one(&threads, &mut workspace.images, call, wanted, &mut ran))?;
        Ok(ran)
    }
}
