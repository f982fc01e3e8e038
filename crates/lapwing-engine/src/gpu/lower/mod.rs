//! Lowers a plan's nodes to kernel launches: which kernel, how many blocks, and with which arguments. Nothing here
//! touches a device; the result names memory by region and offset.
//!
//! A program is made for a [`Capacity`]: grids are as large as the batch may be, kernels read the batch's actual size
//! from its header, and surplus blocks exit at once. So one program serves all batches up to its capacity, without
//! padding.

mod layout;
mod map;
mod products;
mod rows;
mod step;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::args::{Address, KernelArgs, MatrixRef, Region};
use super::kernel::{self, Kernel};
use super::layout::{Kind, StoredValue, ValueLocation, stored, stride};
use super::weights::{WeightForm, WeightLayout};
use super::{Capacity, GpuPrecision, LoweringTarget};
use lapwing_onnx::UnsupportedNode;
use lapwing_plan::plan::{Activation, Node, Op, Plan, Rows, Value, ValueId, WeightId};

pub use self::layout::{HEADER_WORDS, MOST_SEQUENCES, MemoryLayout, PortSlot, header_bytes};
pub use self::step::{Launch, Product, Step};

/// Query rows per block of attention.
pub const QUERIES: usize = 64;
/// Why a node is refused that nothing else is wrong with.
const NO_KERNEL: &str = "there is no kernel for it";

/// A plan, lowered for batches up to a capacity.
#[derive(Clone, Debug)]
pub struct LoweredProgram {
    /// The steps in order.
    pub steps: Vec<Step>,
    /// Where its values are stored.
    pub layout: MemoryLayout,
    /// Whether kernels read the batch's size from a header.
    pub has_header: bool,
}

/// What all programs of a plan share: how values are stored, and where the weights lie.
#[derive(Clone, Debug)]
pub struct PreparedPlan {
    /// The storage of each value.
    pub stored: Vec<StoredValue>,
    /// The layout of the weights.
    pub weights: WeightLayout,
    precision: GpuPrecision,
}

impl PreparedPlan {
    /// Lowers every node once for one row and once for many, so that every weight gets its place in memory.
    ///
    /// # Errors
    ///
    /// [`UnsupportedNode`] names the first node that no kernel supports.
    pub fn new(plan: &Plan, precision: &GpuPrecision, target: &LoweringTarget) -> Result<Self, UnsupportedNode> {
        let mut prepared =
            Self { stored: stored(plan, precision), weights: WeightLayout::default(), precision: precision.clone() };
        let all = vec![true; plan.outputs.len()];
        for capacity in [Capacity { batch: 1, tokens: 1, is_exact: false }, Capacity { batch: 16, tokens: 64, is_exact: false }] {
            prepared.lower(plan, capacity, &all, target)?;
        }
        Ok(prepared)
    }

    /// Lowers the plan for batches up to `capacity`; the program computes the `wanted` outputs.
    ///
    /// # Errors
    ///
    /// [`UnsupportedNode`] names the first node that no kernel supports at this size.
    pub fn lower(
        &mut self,
        plan: &Plan,
        capacity: Capacity,
        wanted: &[bool],
        target: &LoweringTarget,
    ) -> Result<LoweredProgram, UnsupportedNode> {
        if let Some(node) = plan.nodes.iter().find(|node| matches!(node.op, Op::Append { .. })) {
            let reason = NO_KERNEL.into();
            return Err(UnsupportedNode { node: node.name.clone(), operator: node.op.name().into(), reason });
        }
        too_large(plan, capacity)?;
        let needed = needed(plan, wanted);
        let layout = MemoryLayout::new(plan, &self.stored, capacity, &needed, wanted);
        let mut lower = Lowering {
            plan,
            prepared: self,
            capacity,
            layout,
            target,
            steps: Vec::new(),
            scratch: 0,
            has_header: false,
            node: 0,
        };
        for (at, node) in plan.nodes.iter().enumerate().filter(|(at, _)| needed.contains(at)) {
            lower.node = at;
            lower.scratch = 0;
            lower.op(node).map_err(|reason| UnsupportedNode {
                node: node.name.clone(),
                operator: node.op.name().into(),
                reason,
            })?;
        }
        let Lowering { steps, layout, has_header, .. } = lower;
        Ok(LoweredProgram { steps, layout, has_header })
    }
}

/// Checks the kernels' limits: 32-bit element indices, and sequences in the grid's second dimension.
fn too_large(plan: &Plan, capacity: Capacity) -> Result<(), UnsupportedNode> {
    let elements = |value: &Value| capacity.rows(value.rows) as u64 * stride(value.width) as u64;
    let most = plan.values.iter().map(elements).max().unwrap_or(0);
    if most > u64::from(u32::MAX) || capacity.batch > MOST_SEQUENCES {
        let reason = format!("a batch of {} sequences and {most} elements exceeds the kernels' limits", capacity.batch);
        return Err(UnsupportedNode { node: "model".into(), operator: "batch".into(), reason });
    }
    Ok(())
}

/// The nodes that the wanted outputs depend on.
fn needed(plan: &Plan, wanted: &[bool]) -> BTreeSet<usize> {
    let mut values: BTreeSet<ValueId> =
        plan.outputs.iter().zip(wanted).filter(|(_, wanted)| **wanted).map(|(port, _)| port.value).collect();
    let mut needed = BTreeSet::new();
    for (at, node) in plan.nodes.iter().enumerate().rev() {
        if values.contains(&node.output) {
            needed.insert(at);
            values.extend(node.op.reads());
        }
    }
    needed
}

/// One pass of lowering.
struct Lowering<'a> {
    plan: &'a Plan,
    prepared: &'a mut PreparedPlan,
    capacity: Capacity,
    layout: MemoryLayout,
    target: &'a LoweringTarget,
    steps: Vec<Step>,
    /// Scratch memory of the current node, in bytes.
    scratch: usize,
    has_header: bool,
    node: usize,
}

impl Lowering<'_> {
    fn op(&mut self, node: &Node) -> Result<(), String> {
        match &node.op {
            Op::Gemm { .. } => self.product(node),
            Op::Attention { .. } => self.attention(node),
            Op::Rotate { x, heads, head, angles } => {
                self.rotate(node, *x, [*heads, *head], *angles);
                Ok(())
            }
            // before anything is lowered, a plan with it is refused
            Op::Append { .. } => Err(NO_KERNEL.into()),
            Op::Embed { tables, norm } => self.embed(node, tables, norm.as_ref()),
            Op::LayerNorm { x, residual, epsilon, scale, shift } => {
                self.norm(node, [&kernel::LAYER_NORM, &kernel::LAYER_NORM_WIDE], *x, *residual, *epsilon, [*scale, *shift])
            }
            Op::RmsNorm { x, epsilon, scale } => {
                self.norm(node, [&kernel::RMS_NORM, &kernel::RMS_NORM_WIDE], *x, None, *epsilon, [*scale, None])
            }
            Op::Softmax(x) => self.folded(node, &kernel::SOFTMAX, *x, None),
            Op::Reduce { x, fold } => self.folded(node, &kernel::REDUCE, *x, Some(*fold)),
            Op::Pool { x, fold } => self.pooled(node, &kernel::POOL, *x, Some(*fold)),
            Op::CumSum(x) => self.pooled(node, &kernel::CUM_SUM, *x, None),
            Op::MeanPool { x, weights, at_least } => self.mean_pool(node, *x, *weights, *at_least),
            Op::Map { program, args } => self.map(node, program, args),
            Op::Concat(parts) => self.concat(node, parts),
            Op::Slice(columns) => {
                let (from, to) = (self.mat(columns.value), self.mat(node.output));
                let rows = self.plan.value(node.output);
                self.copy(rows.rows, (from, columns.from), (to, 0), rows.width, Activation::None);
                Ok(())
            }
        }
    }

    /// Adds a launch with the kernel's own shared memory.
    fn launch(&mut self, kernel: &'static Kernel, grid: (usize, usize), args: KernelArgs) {
        self.launch_with(kernel, grid, kernel.shared, args);
    }

    fn launch_with(&mut self, kernel: &'static Kernel, grid: (usize, usize), shared: u32, args: KernelArgs) {
        let blocks = |count: usize| u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let grid = (blocks(grid.0), blocks(grid.1));
        self.steps.push(Step::Launch(Launch { node: self.node, kernel, grid, shared, args }));
    }

    /// Takes the latest launch back, for a product that decides later whether it is used.
    fn taken_back(&mut self) -> Option<Box<Launch>> {
        if let Some(Step::Launch(launch)) = self.steps.pop() { Some(Box::new(launch)) } else { None }
    }

    /// The most rows that a value can have.
    const fn most(&self, rows: Rows) -> usize {
        self.capacity.rows(rows)
    }

    /// The address of the header, for kernels that need the sequences.
    fn header(&mut self) -> Address {
        self.has_header = true;
        Address::new(Region::Inputs, 0)
    }

    /// Adds the field with the number of rows.
    fn rows(&mut self, args: KernelArgs, rows: Rows) -> KernelArgs {
        let header = if self.capacity.is_exact { None } else { Some(self.header()) };
        args.rows(header, usize::from(rows == Rows::Token), self.most(rows))
    }

    /// The address and layout of a value.
    fn mat(&self, id: ValueId) -> MatrixRef {
        let StoredValue { kind, stride, location } = self.prepared.stored[id.0];
        let at = match location {
            ValueLocation::Input(at) => Address::new(Region::Inputs, self.layout.inputs[at].offset),
            ValueLocation::Output(at) => match self.layout.unwanted[at] {
                Some(offset) => Address::new(Region::Arena, self.layout.arena.bytes() + offset),
                None => Address::new(Region::Outputs, self.layout.outputs[at].offset),
            },
            ValueLocation::Arena => Address::new(Region::Arena, self.layout.arena.place(id).map_or(0, |place| place.offset)),
        };
        MatrixRef { at, stride, kind }
    }

    /// A value with the given element type: the value itself, or a converted copy, for which a launch is added.
    fn as_kind(&mut self, id: ValueId, kind: Kind) -> MatrixRef {
        let (mat, value) = (self.mat(id), self.plan.value(id));
        if mat.kind == kind {
            return mat;
        }
        let copy = self.scratch(self.most(value.rows), value.width, kind);
        self.copy(value.rows, (mat, 0), (copy, 0), value.width, Activation::None);
        copy
    }

    /// Scratch memory for this node only, after the memory of the values.
    fn scratch(&mut self, rows: usize, width: usize, kind: Kind) -> MatrixRef {
        let stored = StoredValue { location: ValueLocation::Arena, kind, stride: stride(width) };
        let at = Address::new(Region::Arena, self.layout.scratch_from() + self.scratch);
        self.scratch += stored.bytes(rows);
        self.layout.scratch = self.layout.scratch.max(self.scratch);
        MatrixRef { at, stride: stored.stride, kind }
    }

    fn row(&mut self, id: Option<WeightId>) -> Option<Address> {
        id.map(|id| self.form(WeightForm::Row(id)))
    }

    fn form(&mut self, form: WeightForm) -> Address {
        self.prepared.weights.place(self.plan, form)
    }
}
