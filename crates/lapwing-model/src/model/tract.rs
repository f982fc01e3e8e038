//! A model run by tract, call by call: models that have no plan, where ONNX Runtime is not found.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tract_onnx::prelude::{DatumType, IntoRunnable, TValue, TVec, TractResult, TypedModel, TypedRunnableModel};

use super::batch::BatchResult;
use super::executor::{Executor, ExecutorName, Workspace};
use super::ports::Ports;
use lapwing_engine::clock::Stamp;
use lapwing_engine::placement::{Fallback, Placement};
use lapwing_onnx::EngineError;
use lapwing_onnx::ports::datatype;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{DynamicGraph, Graph};

/// How many optimised graphs are kept, one for each set of lengths of open dimensions.
const SHAPES: usize = 16;

/// A graph that tract has optimised.
#[derive(Debug)]
pub(crate) struct TractExecutor {
    ready: Ready,
    kinds: Vec<DatumType>,
    ports: Ports,
    placement: Arc<Placement>,
}

#[derive(Debug)]
enum Ready {
    /// One graph for all lengths.
    Whole(Arc<TypedRunnableModel>),
    /// One graph for each set of input shapes, the most recently used last.
    Shaped(Box<DynamicGraph>, Mutex<Vec<Shaped>>),
}

/// A graph for inputs of these shapes.
type Shaped = (Vec<Vec<usize>>, Arc<TypedRunnableModel>);

fn optimised(model: TypedModel) -> TractResult<Arc<TypedRunnableModel>> {
    model.into_optimized().and_then(IntoRunnable::into_runnable)
}

impl TractExecutor {
    /// Optimises a graph: tens of milliseconds for a small one. `fallback` says why no GPU runs it, if one was looked for.
    pub(crate) fn new(graph: Graph, ports: Ports, fallback: Option<Fallback>) -> Result<Self, EngineError> {
        let fails = |e: tract_onnx::prelude::TractError| EngineError::part("graph", format!("tract cannot run it: {e:#}"));
        let model = graph.typed;
        let kinds = model.inputs.iter().map(|outlet| model.outlet_fact(*outlet).map(|fact| fact.datum_type));
        let kinds = kinds.collect::<TractResult<_>>().map_err(fails)?;
        let ready = match graph.open {
            Some(open) => Ready::Shaped(Box::new(open), Mutex::default()),
            None => Ready::Whole(optimised(model).map_err(fails)?),
        };
        Ok(Self { ready, kinds, ports, placement: Arc::new(Placement::on_cpu("fp32", fallback)) })
    }

    /// The graph for a call of these shapes. For a graph with open dimensions, a new shape costs as much as loading.
    fn graph(&self, call: &[Tensor]) -> TractResult<Arc<TypedRunnableModel>> {
        let (open, kept) = match &self.ready {
            Ready::Whole(model) => return Ok(model.clone()),
            Ready::Shaped(open, kept) => (open, kept),
        };
        let shapes: Vec<Vec<usize>> = call.iter().map(|tensor| tensor.shape.clone()).collect();
        let mut kept = kept.lock();
        let model = match kept.iter().position(|(known, _)| *known == shapes) {
            Some(at) => kept.remove(at).1,
            None => optimised(open.shaped(&shapes)?)?,
        };
        let beyond = (kept.len() + 1).saturating_sub(SHAPES);
        kept.drain(..beyond);
        kept.push((shapes, model.clone()));
        Ok(model)
    }
}

impl Executor for TractExecutor {
    fn name(&self) -> ExecutorName {
        ExecutorName::Tract
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

    /// Runs calls one after the other, because their rows may depend on one another.
    fn run(&self, _: &mut Workspace, calls: &[&[Tensor]], _: &[bool]) -> Result<BatchResult, EngineError> {
        let mut ran = BatchResult::default();
        for call in calls {
            let began = Stamp::now();
            let fails = |e: tract_onnx::prelude::TractError| EngineError::Run { reason: format!("{e:#}") };
            let inputs: TVec<TValue> =
                call.iter().zip(&self.kinds).map(|(t, kind)| read(t, *kind)).collect::<TractResult<_>>().map_err(fails)?;
            let read = Stamp::now();
            let graph = self.graph(call).map_err(fails)?;
            let read = if matches!(self.ready, Ready::Shaped(..)) { Stamp::now() } else { read };
            let outputs = graph.run(inputs).map_err(fails)?;
            let done = Stamp::now();
            let tensors = self.ports.outputs.iter().zip(&outputs).map(|(port, output)| write(port, output));
            ran.outputs.push(tensors.collect::<Result<_, _>>()?);
            ran.preprocessing_ns += read.since(began);
            ran.forward_ns += done.since(read);
            ran.postprocessing_ns += done.elapsed();
        }
        Ok(ran)
    }
}

fn read(tensor: &Tensor, kind: DatumType) -> TractResult<TValue> {
    // tract has its own integer type for values computed from symbolic lengths
    let mut made =
        tract_onnx::prelude::Tensor::zero_dt(if kind == DatumType::TDim { DatumType::I64 } else { kind }, &tensor.shape)?;
    made.as_bytes_mut().copy_from_slice(&tensor.data);
    let made = if kind == DatumType::TDim { made.cast_to_dt(kind)?.into_owned() } else { made };
    Ok(made.into())
}

fn write(port: &TensorSpec, output: &TValue) -> Result<Tensor, EngineError> {
    let fails = |reason: String| EngineError::Run { reason: format!("output {}: {reason}", port.name) };
    let kind = output.datum_type();
    let plain = if kind == DatumType::TDim {
        output.cast_to::<i64>().map_err(|e| fails(format!("{e:#}")))?
    } else {
        std::borrow::Cow::Borrowed(&**output)
    };
    let datatype = datatype(kind).ok_or_else(|| fails(format!("has elements of type {kind:?}")))?;
    let data = Bytes::copy_from_slice(plain.as_bytes());
    Ok(Tensor { name: port.name.clone(), datatype, shape: output.shape().to_vec(), data })
}
