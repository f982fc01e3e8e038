//! The work of calls of a model without a plan, counted from its graph.

use std::sync::Arc;

use lapwing_onnx::GraphWork;
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_onnx::tensor::Tensor;
use parking_lot::Mutex;

/// How many sets of shapes are remembered: a count takes as long as inferring the graph's shapes.
const SHAPES: usize = 32;

/// FLOPs of a call whose inputs have these shapes.
type Known = (Vec<Vec<usize>>, Option<u64>);

/// Counts the work of calls.
#[derive(Debug)]
pub(crate) struct Meter {
    graph: ShapedGraph,
    /// FLOPs by the shapes of a call, the latest last.
    known: Mutex<Vec<Known>>,
}

impl Meter {
    /// A meter for a graph, which keeps none of its weights.
    pub(crate) fn new(graph: &Arc<ShapedGraph>) -> Self {
        Self { graph: graph.without_weights(), known: Mutex::default() }
    }

    /// FLOPs of products for a call of these inputs; `None` if some of them are not counted.
    pub(crate) fn flops(&self, call: &[Tensor]) -> Option<u64> {
        let is_it = |(shapes, _): &Known| shapes.iter().eq(call.iter().map(|tensor| &tensor.shape));
        if let Some((_, flops)) = self.known.lock().iter().rfind(|known| is_it(known)) {
            return *flops;
        }
        // without the lock: other calls do not wait for a count
        let shapes: Vec<Vec<usize>> = call.iter().map(|tensor| tensor.shape.clone()).collect();
        let work = self.graph.work(&shapes).ok().filter(|work| !work.misses_products);
        let flops = work.map(|work| work.flops);
        let mut known = self.known.lock();
        let beyond = (known.len() + 1).saturating_sub(SHAPES);
        known.drain(..beyond);
        known.push((shapes, flops));
        flops
    }

    /// The work of a call of `rows` rows, each of `length` tokens if axes after the first are open.
    pub(crate) fn work(&self, rows: usize, length: usize) -> Option<GraphWork> {
        self.graph.work(&self.graph.input_shapes(rows, length)?).ok()
    }
}
