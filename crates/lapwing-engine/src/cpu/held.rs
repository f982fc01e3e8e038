//! What an executor holds and what its nodes cost at the width at which it holds them: as the plan's accounting has it, but with the
//! weights of products in 8 bits at a byte each, and a scale and a sum of 4 bytes for each column.

use super::executor::Executor;
use super::prepare::PreparedNode;
use crate::Precision;
use crate::plan::{Cost, Op, Size, Total, WeightId};

impl Executor {
    /// In what the node at this place multiplies; single precision where it does not, and where there is none.
    #[must_use]
    pub fn multiplies_in(&self, place: usize) -> Precision {
        if matches!(self.ready.get(place), Some(PreparedNode::GemmI8(..))) { Precision::Int8 } else { Precision::Fp32 }
    }

    /// How many of its nodes are done in 8 bits with one range for all rows.
    #[must_use]
    pub fn fixed_nodes(&self) -> usize {
        self.ready.iter().filter(|ready| matches!(ready, PreparedNode::GemmI8(_, Some(_)))).count()
    }

    /// Bytes of all weights as they are held: packed (padding included) where they are of products, else four a number.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        let packed = self.ready.iter().map(|ready| match ready {
            PreparedNode::Gemm(packed) => packed.bytes(),
            PreparedNode::GemmI8(packed, _) => packed.bytes(),
            PreparedNode::Map(_) | PreparedNode::Plain => 0,
        });
        packed.sum::<usize>() + self.plan.weights.iter().map(|weight| 4 * weight.data.len()).sum::<usize>()
    }

    /// What the node at this place costs; nothing where there is none.
    #[must_use]
    pub fn cost(&self, place: usize, size: Size) -> Cost {
        let Some(node) = self.plan.nodes.get(place) else { return Cost::default() };
        let mut cost = self.plan.cost(node, size);
        if let Some((_, saved)) = self.saved(place) {
            cost.bytes = cost.bytes.saturating_sub(saved);
        }
        cost
    }

    /// What the whole plan costs.
    #[must_use]
    pub fn total(&self, size: Size) -> Total {
        let mut total = self.plan.total(size);
        let saved: Vec<_> = (0..self.plan.nodes.len()).filter_map(|place| self.saved(place)).collect();
        let each: std::collections::BTreeMap<WeightId, u64> = saved.iter().copied().collect();
        total.cost.bytes = total.cost.bytes.saturating_sub(saved.iter().map(|(_, bytes)| bytes).sum());
        total.min_bytes = total.min_bytes.saturating_sub(each.values().sum());
        total
    }

    /// How many bytes less the node's weight takes than in single precision; `None` where it is in single precision.
    fn saved(&self, place: usize) -> Option<(WeightId, u64)> {
        let (Some(PreparedNode::GemmI8(packed, _)), Some(Op::Gemm { weight, .. })) =
            (self.ready.get(place), self.plan.nodes.get(place).map(|node| &node.op))
        else {
            return None;
        };
        let (k, n) = (packed.k() as u64, packed.n() as u64);
        Some((*weight, (4 * k * n).saturating_sub(k * n + 8 * n)))
    }
}
