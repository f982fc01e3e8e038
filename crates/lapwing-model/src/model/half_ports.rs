//! A plan, which computes in single precision, for a model whose inputs or outputs are of half: they are widened before a run, and rounded
//! behind it.

use std::sync::Arc;

use ::rten::ThreadPool;
use smallvec::SmallVec;

use super::batch::{BatchResult, CallWork};
use super::executor::{Executor, ExecutorName, Workspace};
use super::ports::Ports;
use lapwing_engine::clock::Stamp;
use lapwing_engine::cpu::CpuExecutor;
use lapwing_engine::placement::Placement;
use lapwing_onnx::tensor::{Datatype, Tensor, TensorSpec, narrowed, widened};
use lapwing_onnx::{EngineError, GraphWork};
use lapwing_plan::plan::Plan;

/// An executor in single precision behind ports of half.
#[derive(Debug)]
pub(crate) struct HalfPorts<E> {
    single: E,
    ports: Ports,
}

impl<E: Executor> HalfPorts<E> {
    /// `single` has the same ports as `ports`, but in single precision.
    pub(crate) const fn new(single: E, ports: Ports) -> Self {
        Self { single, ports }
    }
}

impl<E: Executor> Executor for HalfPorts<E> {
    fn name(&self) -> ExecutorName {
        self.single.name()
    }

    fn inputs(&self) -> &[TensorSpec] {
        &self.ports.inputs
    }

    fn outputs(&self) -> &[TensorSpec] {
        &self.ports.outputs
    }

    fn batches(&self) -> bool {
        self.single.batches()
    }

    fn accept(&self, inputs: &[Tensor]) -> Result<CallWork, EngineError> {
        self.single.accept(inputs)
    }

    fn placement(&self) -> Arc<Placement> {
        self.single.placement()
    }

    fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]], wanted: &[bool]) -> Result<BatchResult, EngineError> {
        let began = Stamp::now();
        let wide: Vec<Vec<Tensor>> = calls.iter().map(|call| call.iter().map(single).collect()).collect();
        let wide: SmallVec<[&[Tensor]; 8]> = wide.iter().map(Vec::as_slice).collect();
        let widened_ns = began.elapsed();
        let mut result = self.single.run(workspace, &wide, wanted)?;
        let began = Stamp::now();
        for (tensor, port) in result.outputs.iter_mut().flat_map(|outputs| outputs.iter_mut().zip(&self.ports.outputs)) {
            if let Some(data) = narrowed(port.datatype, &tensor.data) {
                (tensor.datatype, tensor.data) = (port.datatype, data);
            }
        }
        result.preprocessing_ns += widened_ns;
        result.postprocessing_ns += began.elapsed();
        Ok(result)
    }

    fn notes(&self) -> &[String] {
        self.single.notes()
    }

    fn host(&self, workspace: &mut Workspace) -> Option<Arc<ThreadPool>> {
        self.single.host(workspace)
    }

    fn work(&self, rows: usize) -> Option<GraphWork> {
        self.single.work(rows)
    }

    fn plan(&self) -> Option<&Plan> {
        self.single.plan()
    }

    // which knows what a run costs; a GPU's is not given out, because tools give it a call's tensors as they are
    fn cpu_executor(&self) -> Option<&CpuExecutor> {
        self.single.cpu_executor()
    }
}

/// The same tensor, in single precision if it is of half.
fn single(tensor: &Tensor) -> Tensor {
    match widened(tensor.datatype, &tensor.data) {
        Some(data) => Tensor { datatype: Datatype::Fp32, data, name: tensor.name.clone(), shape: tensor.shape.clone() },
        None => tensor.clone(),
    }
}
