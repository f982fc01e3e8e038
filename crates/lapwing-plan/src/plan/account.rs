//! The cost of a plan, counted exactly from its nodes and the batch size.
//!
//! - A multiply-add is two FLOPs. A GEMM of `[m, k]` by `[k, n]` has `2·m·n·k`; attention over sequences of lengths `s`
//!   has `4·Σs²·d` with `d` = heads × head size (half of it for the scores, half for the values), or `4·Σs·(p + s)·d` after pasts
//!   of `p` tokens. Added biases and residuals, activations, norms, softmax, sums of lookups and maps are counted separately, as `other_ops`.
//! - The bytes of a node are those of each distinct matrix that it reads or writes, once, at its stored width; of a
//!   lookup table, the rows that are read.

use std::collections::BTreeSet;

use super::{Activation, Angles, BatchSize, Instruction, Node, Op, Plan, Rows, ValueId, WeightId};

/// The cost of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations of matrix products.
    pub flops: u64,
    /// All others.
    pub other_ops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

/// The cost of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// The sum over its nodes.
    pub cost: Cost,
    /// The least that any execution reads and writes: weights, inputs and outputs, once.
    pub min_bytes: u64,
}

/// The stored widths of numbers in an executor. A [`Plan`]'s own widths are those of its types, and four bytes for each
/// weight element.
pub trait Widths {
    /// Bytes of one element of a value.
    fn value(&self, id: ValueId) -> usize;
    /// Bytes per element of a weight as the node reads it, and additional bytes per column.
    fn weight(&self, node: &Node, id: WeightId) -> (usize, usize);
}

impl Widths for Plan {
    fn value(&self, id: ValueId) -> usize {
        self.value(id).kind.bytes()
    }

    fn weight(&self, _: &Node, _: WeightId) -> (usize, usize) {
        (4, 0)
    }
}

impl Plan {
    /// The cost of a node for a batch of this size.
    #[must_use]
    pub fn cost(&self, node: &Node, size: BatchSize) -> Cost {
        self.cost_in(node, size, self)
    }

    /// The same for other stored widths.
    #[must_use]
    pub fn cost_in(&self, node: &Node, size: BatchSize, widths: &impl Widths) -> Cost {
        let out = self.value(node.output);
        let (rows, width) = (size.rows(out.rows) as u64, out.width as u64);
        let elements = rows * width;
        let (flops, other_ops) = match &node.op {
            Op::Gemm { weight, bias, activation, residual, .. } => {
                let k = self.weight(*weight).rows as u64;
                let extra =
                    u64::from(bias.is_some()) + u64::from(*activation != Activation::None) + u64::from(residual.is_some());
                (2 * elements * k, extra * elements)
            }
            Op::Attention { heads, head, head_out, bias, by_distance, .. } => {
                let is_past = node.op.reads().iter().any(|id| self.value(*id).rows == Rows::Context);
                let pairs = size.squares + if is_past { size.by_past } else { 0 };
                let (pairs, heads) = (pairs as u64, *heads as u64);
                let products = 2 * pairs * heads * (head + head_out) as u64;
                // scale, biases, and the softmax: maximum, difference, exponential, sum, quotient
                let biases = u64::from(bias.is_some()) + u64::from(by_distance.is_some());
                (products, pairs * heads * (6 + biases))
            }
            Op::Embed { tables, norm } => {
                let norm = norm.map_or(0, |norm| 5 + u64::from(norm.scale.is_some()) + u64::from(norm.shift.is_some()));
                (0, (tables.len() as u64 - 1 + norm) * elements)
            }
            Op::LayerNorm { residual, scale, shift, .. } => {
                let extra = u64::from(residual.is_some()) + u64::from(scale.is_some()) + u64::from(shift.is_some());
                (0, (5 + extra) * elements) // mean, difference, square, sum, product
            }
            Op::RmsNorm { scale, .. } => (0, (3 + u64::from(scale.is_some())) * elements),
            Op::Softmax(_) => (0, 5 * elements),
            Op::Map { program, args } => {
                let is_wide = |step: &Instruction| match step {
                    Instruction::Arg(place) => self.value(args[*place]).width > 1,
                    Instruction::Weight(id) => self.weight(*id).width > 1,
                    _ => false,
                };
                (0, rows * program.operations(out.width, is_wide) as u64)
            }
            Op::Reduce { x, .. } | Op::Pool { x, .. } => {
                let x = self.value(*x);
                (0, (size.rows(x.rows) * x.width) as u64)
            }
            Op::MeanPool { x, .. } => {
                let x = self.value(*x);
                let each = (size.rows(x.rows) * x.width) as u64; // product and sum; then the weights' sum, and the quotient
                (0, 2 * each + size.rows(x.rows) as u64 + elements)
            }
            Op::CumSum(_) => (0, elements),
            Op::Rotate { .. } => (0, 3 * elements), // two products and a sum
            Op::Append { .. } | Op::Concat(_) | Op::Slice(_) => (0, 0),
        };
        Cost { flops, other_ops, bytes: self.node_bytes(node, size, widths) }
    }

    fn node_bytes(&self, node: &Node, size: BatchSize, widths: &impl Widths) -> u64 {
        let values: BTreeSet<_> = node.op.reads().into_iter().chain([node.output]).collect();
        let of_value = |id| self.value_bytes(id, size, widths);
        let weights: BTreeSet<_> = node.op.weights().into_iter().collect();
        let rows = size.rows(self.value(node.output).rows);
        values.into_iter().map(of_value).sum::<u64>()
            + weights.into_iter().map(|id| self.weight_bytes(node, id, rows, widths)).sum::<u64>()
    }

    fn value_bytes(&self, id: ValueId, size: BatchSize, widths: &impl Widths) -> u64 {
        let value = self.value(id);
        (size.rows(value.rows) * value.width * widths.value(id)) as u64
    }

    /// Bytes of a weight that a node with `rows` output rows reads.
    fn weight_bytes(&self, node: &Node, id: WeightId, rows: usize, widths: &impl Widths) -> u64 {
        let weight = self.weight(id);
        let is_table = match &node.op {
            Op::Embed { tables, .. } => tables.iter().any(|(table, _)| *table == id),
            Op::Rotate { .. } => true,
            _ => false,
        };
        let touched = if is_table { weight.rows.min(rows) } else { weight.rows };
        let (each, column) = widths.weight(node, id);
        (weight.width * (touched * each + column)) as u64
    }

    /// The cost of the whole plan for a batch of this size.
    #[must_use]
    pub fn total(&self, size: BatchSize) -> Total {
        self.total_in(size, self)
    }

    /// The same for other stored widths.
    #[must_use]
    pub fn total_in(&self, size: BatchSize, widths: &impl Widths) -> Total {
        let mut total = Total::default();
        let mut weights = std::collections::BTreeMap::new();
        for node in &self.nodes {
            let Cost { flops, other_ops, bytes } = self.cost_in(node, size, widths);
            total.cost.flops += flops;
            total.cost.other_ops += other_ops;
            total.cost.bytes += bytes;
            for id in node.op.weights() {
                let touched = weights.entry(id).or_insert(0);
                *touched = self.weight_bytes(node, id, size.rows(self.value(node.output).rows), widths).max(*touched);
            }
        }
        let ports = self.inputs.iter().chain(&self.outputs).map(|port| self.value_bytes(port.value, size, widths));
        let carried: u64 = ports.sum();
        total.min_bytes = carried + weights.values().sum::<u64>();
        total
    }

    /// Number of parameters. Tables of rotary positions and of what depends on the distance of tokens (causal masks, windows, position
    /// biases) were computed, and are none.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let mut computed: Vec<WeightId> = Vec::new();
        let mut angles: Vec<ValueId> = Vec::new();
        for node in &self.nodes {
            match &node.op {
                Op::Rotate { angles: Angles::ByPosition { cos, sin }, .. } => computed.extend([*cos, *sin]),
                Op::Rotate { angles: Angles::ByToken { cos, sin }, .. } => angles.extend([*cos, *sin]),
                Op::Attention { by_distance, .. } => computed.extend(by_distance),
                _ => {}
            }
        }
        // and of what angles of given positions are made: nodes are in running order
        for node in self.nodes.iter().rev() {
            if angles.contains(&node.output) {
                angles.extend(node.op.reads());
                computed.extend(node.op.weights());
            }
        }
        let is_learned = |at: &usize| !computed.contains(&WeightId(*at));
        let learned = self.weights.iter().enumerate().filter(|(at, _)| is_learned(at)).map(|(_, weight)| weight);
        learned.map(|weight| (weight.rows * weight.width) as u64).sum()
    }

    /// Whether batches have sequences: some value has a row for each token.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.values.iter().any(|value| value.rows == Rows::Token)
    }

    /// Whether sequences have a past: some input is a cache.
    #[must_use]
    pub fn has_past(&self) -> bool {
        self.inputs.iter().any(|port| self.value(port.value).rows == Rows::Past)
    }
}
