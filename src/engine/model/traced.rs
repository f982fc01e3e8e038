//! A model run by tract as it is: what has no plan, and every model in a build without kernels.

use std::sync::Arc;

use bytes::Bytes;
use tract_onnx::prelude::{DatumType, IntoRunnable, TValue, TVec, TractResult, TypedModel, TypedRunnableModel};

use super::Ran;
use super::ports::datatype;
use crate::engine::EngineError;
use crate::engine::tensor::{Port, Tensor};
use crate::ledger::Stamp;

/// A graph that tract has optimised.
#[derive(Debug)]
pub(super) struct Traced {
    plan: Arc<TypedRunnableModel>,
    kinds: Vec<DatumType>,
}

impl Traced {
    /// Optimises a graph: tens of milliseconds for a small one.
    pub(super) fn new(model: TypedModel) -> Result<Self, EngineError> {
        let fails = |e: tract_onnx::prelude::TractError| EngineError::part("graph", format!("tract cannot run it: {e:#}"));
        let kinds = model.inputs.iter().map(|outlet| model.outlet_fact(*outlet).map(|fact| fact.datum_type));
        let kinds = kinds.collect::<TractResult<_>>().map_err(fails)?;
        let plan = model.into_optimized().and_then(IntoRunnable::into_runnable).map_err(fails)?;
        Ok(Self { plan, kinds })
    }

    /// Runs calls one after the other: nothing is known of how their rows touch one another.
    pub(super) fn run(&self, ports: &[Port], calls: &[&[Tensor]]) -> Result<Ran, EngineError> {
        let mut ran = Ran::default();
        for call in calls {
            let began = Stamp::now();
            let fails = |e: tract_onnx::prelude::TractError| EngineError::Run { reason: format!("{e:#}") };
            let inputs: TVec<TValue> =
                call.iter().zip(&self.kinds).map(|(t, kind)| read(t, *kind)).collect::<TractResult<_>>().map_err(fails)?;
            let read = Stamp::now();
            let outputs = self.plan.run(inputs).map_err(fails)?;
            let done = Stamp::now();
            let tensors = ports.iter().zip(&outputs).map(|(port, output)| write(port, output)).collect::<Result<_, _>>()?;
            ran.outputs.push(tensors);
            ran.preprocessing_ns += read.since(began);
            ran.forward_ns += done.since(read);
            ran.postprocessing_ns += done.elapsed();
        }
        Ok(ran)
    }
}

fn read(tensor: &Tensor, kind: DatumType) -> TractResult<TValue> {
    // the graph's symbols for lengths are whole numbers of tract's own
    let mut made =
        tract_onnx::prelude::Tensor::zero_dt(if kind == DatumType::TDim { DatumType::I64 } else { kind }, &tensor.shape)?;
    made.as_bytes_mut().copy_from_slice(&tensor.data);
    let made = if kind == DatumType::TDim { made.cast_to_dt(kind)?.into_owned() } else { made };
    Ok(made.into())
}

fn write(port: &Port, output: &TValue) -> Result<Tensor, EngineError> {
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
