//! The cost of a plan on the device that runs it, counted from its nodes with the device's number formats.

use super::Precision;
use crate::plan::{BatchSize, Cost, Node, Plan, Total, Widths};

/// The cost of a plan on a device for one batch size. Padding and copies that a kernel needs for itself are not counted as
/// operations or as bytes of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionCost {
    /// For each node of the plan, the number format of its products and its cost. Nodes without products are `fp32`.
    pub nodes: Vec<(Precision, Cost)>,
    /// The whole plan.
    pub total: Total,
    /// Bytes of the model's numbers as the device holds them, padding included.
    pub weight_bytes: usize,
    /// Bytes of the memory that holds values between nodes, padding included.
    pub arena_bytes: usize,
    /// Kernels that one run calls or launches; a library's product counts as one.
    pub kernels: usize,
}

impl ExecutionCost {
    /// Counts the operations and bytes of `plan` for batches of `size`; `precision` returns the number format of each node, by
    /// its index in the plan.
    #[must_use]
    pub fn count(plan: &Plan, size: BatchSize, widths: &impl Widths, precision: impl Fn(usize, &Node) -> Precision) -> Self {
        let node = |(at, node): (usize, &Node)| (precision(at, node), plan.cost_in(node, size, widths));
        Self {
            nodes: plan.nodes.iter().enumerate().map(node).collect(),
            total: plan.total_in(size, widths),
            weight_bytes: 0,
            arena_bytes: 0,
            kernels: plan.nodes.len(),
        }
    }
}
