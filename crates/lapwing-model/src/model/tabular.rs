//! Trees, linear models and what prepares their columns, by lapwing-tabular, call by call.

use std::sync::Arc;

use super::batch::{self, BatchResult, CallWork};
use super::executor::{Executor, ExecutorName, Workspace};
use lapwing_engine::clock::Stamp;
use lapwing_engine::placement::{Fallback, Placement};
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, GraphWork, OnnxFile};
use lapwing_tabular::TabularModel;

/// The operator set of classical models.
const DOMAIN: &str = "ai.onnx.ml";

/// A classical model.
#[derive(Debug)]
pub(crate) struct TabularExecutor {
    model: TabularModel,
    placement: Arc<Placement>,
}

impl TabularExecutor {
    /// A model as an executor. `fallback` says why no GPU runs it, if one was looked for.
    pub(crate) fn new(model: TabularModel, fallback: Option<Fallback>) -> Self {
        Self { model, placement: Arc::new(Placement::on_cpu("fp32", fallback)) }
    }
}

/// Whether a file has classical operators: all others are the plan's first.
pub(crate) fn is_classical(file: &OnnxFile) -> bool {
    file.proto.graph.iter().flat_map(|graph| &graph.node).any(|node| node.domain == DOMAIN)
}

impl Executor for TabularExecutor {
    fn name(&self) -> ExecutorName {
        ExecutorName::Tabular
    }

    fn inputs(&self) -> &[TensorSpec] {
        self.model.inputs()
    }

    fn outputs(&self) -> &[TensorSpec] {
        self.model.outputs()
    }

    fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement)
    }

    fn accept(&self, inputs: &[Tensor]) -> Result<CallWork, EngineError> {
        let work = batch::rows(inputs);
        let flops = self.model.cost(work.rows).flops;
        Ok(CallWork { flops: Some((flops, flops)), ..work })
    }

    fn work(&self, rows: usize) -> Option<GraphWork> {
        let cost = self.model.cost(rows);
        let uncounted = Default::default();
        Some(GraphWork {
            flops: cost.flops,
            other_ops: cost.comparisons,
            bytes: cost.bytes,
            min_bytes: cost.bytes,
            uncounted,
            misses_products: false,
        })
    }

    /// Runs calls one after the other. Columns are read in the forward pass, and results written.
    fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]], wanted: &[bool]) -> Result<BatchResult, EngineError> {
        let mut result = BatchResult::default();
        for call in calls {
            let began = Stamp::now();
            let mut made = self.model.run(&mut workspace.tabular, call, wanted)?.into_iter();
            let unwanted = |port: &TensorSpec| Tensor {
                name: port.name.clone(),
                datatype: port.datatype,
                shape: Vec::new(),
                data: bytes::Bytes::new(),
            };
            let outputs = self.model.outputs().iter().enumerate().map(|(at, port)| {
                let made = if wanted.get(at) == Some(&true) { made.next() } else { None };
                made.unwrap_or_else(|| unwanted(port))
            });
            result.outputs.push(outputs.collect());
            result.forward_ns += began.elapsed();
        }
        Ok(result)
    }
}
