//! The cost of a plan on the CPU. Weights of 8-bit products take one byte for each number, and for each column a scale and a sum
//! of four bytes each.

use super::executor::CpuExecutor;
use super::prepare::PreparedNode;
use lapwing_plan::exec::{ExecutionCost, Precision};
use lapwing_plan::plan::{Arena, BatchSize, Node, Op, Plan, ValueId, WeightId, Widths};

/// The bytes of each number of a plan in an executor.
struct Packed<'a> {
    plan: &'a Plan,
    /// Outputs of the nodes that run in 8 bits.
    int8: Vec<ValueId>,
}

impl Widths for Packed<'_> {
    fn value(&self, id: ValueId) -> usize {
        Widths::value(self.plan, id)
    }

    fn weight(&self, node: &Node, id: WeightId) -> (usize, usize) {
        match &node.op {
            Op::Gemm { weight, .. } if *weight == id && self.int8.contains(&node.output) => (1, 8),
            _ => Widths::weight(self.plan, node, id),
        }
    }
}

impl CpuExecutor {
    /// The cost of the plan for batches of this size.
    #[must_use]
    pub fn execution_cost(&self, size: BatchSize) -> ExecutionCost {
        let int8 = self
            .prepared
            .plan
            .nodes
            .iter()
            .zip(&self.prepared.ready)
            .filter(|(_, ready)| matches!(ready, PreparedNode::GemmI8(..)));
        let packed = Packed { plan: &self.prepared.plan, int8: int8.map(|(node, _)| node.output).collect() };
        ExecutionCost {
            weight_bytes: self.weight_bytes(),
            arena_bytes: Arena::new(&self.prepared.plan, size).bytes(),
            ..ExecutionCost::count(&self.prepared.plan, size, &packed, |at, _| self.product_precision(at))
        }
    }

    /// The number format of the products of the node with this index; single precision if it has none, or does not exist.
    #[must_use]
    pub fn product_precision(&self, place: usize) -> Precision {
        if matches!(self.prepared.ready.get(place), Some(PreparedNode::GemmI8(..))) { Precision::Int8 } else { Precision::Fp32 }
    }

    /// The number of nodes that run in 8 bits with one range for all rows.
    #[must_use]
    pub fn fixed_nodes(&self) -> usize {
        self.prepared.ready.iter().filter(|ready| matches!(ready, PreparedNode::GemmI8(_, Some(_)))).count()
    }

    /// Bytes of all weights in memory: packed (padding included) for products, else four bytes for each number.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        let packed = self.prepared.ready.iter().map(|ready| match ready {
            PreparedNode::Gemm(packed) => packed.bytes(),
            PreparedNode::GemmI8(packed, _) => packed.bytes(),
            PreparedNode::Attention(table) => table.bytes(),
            PreparedNode::Map(_) | PreparedNode::Plain => 0,
        });
        packed.sum::<usize>() + self.prepared.plan.weights.iter().map(|weight| 4 * weight.data.len()).sum::<usize>()
    }
}
