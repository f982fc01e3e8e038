//! From a plan's nodes to the launches of kernels: which kernel, how many blocks, and what it is given. Nothing of a device is
//! touched here; the outcome names memory by region and offset.
//!
//! A program is made for a [`Capacity`]: grids are as large as its batch may be, kernels read from the batch's header how
//! large it is, and blocks that have nothing to do end at once. So one program serves all batches up to its capacity, and
//! none is padded.

mod map;
mod places;
mod products;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::args::{Address, Args, Mat, Region};
use super::kernel::{self, Kernel};
use super::layout::{Home, Kind, Stored, stored, stride};
use super::weights::{Book, Piece};
use super::{Capacity, GpuPrecision, Target};
use crate::UnsupportedNode;
use crate::plan::{Node, Op, Plan, Rows, Value, ValueId, WeightId};

pub use self::places::{Places, Slot};
pub use self::products::Product;

/// Words of the header before its lists.
pub const HEADER_WORDS: usize = 8;
/// Sequences (or rows of a table) that a batch may have.
pub const MOST_SEQUENCES: usize = 65_535;
/// Query rows that one block of attention has.
pub const QUERIES: usize = 64;

/// Bytes of the header of batches up to this size, at a multiple of 256.
#[must_use]
pub const fn header_bytes(capacity: Capacity) -> usize {
    (4 * (HEADER_WORDS + 2 * (capacity.batch + 1))).next_multiple_of(256)
}

/// One kernel, launched.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The plan's node that it is of.
    pub node: usize,
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Blocks.
    pub grid: (u32, u32),
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// What it is given.
    pub args: Args,
}

/// A step of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// One of our kernels.
    Launch(Launch),
    /// A product that cublasLt does.
    Product(Product),
}

impl Step {
    /// The plan's node that it is of.
    #[must_use]
    pub const fn node(&self) -> usize {
        match self {
            Self::Launch(launch) => launch.node,
            Self::Product(product) => product.node,
        }
    }
}

/// A plan for batches up to a capacity.
#[derive(Clone, Debug)]
pub struct Program {
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// Where its values lie.
    pub places: Places,
    /// Whether kernels read the batch's size from its header.
    pub has_header: bool,
}

/// What every program of a plan shares: how values are stored, and where the model's numbers lie.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Of each value.
    pub stored: Vec<Stored>,
    /// The model's numbers.
    pub book: Book,
    precision: GpuPrecision,
}

impl Prepared {
    /// Finds the kernels of every node once, for one row and for many, so that every number of the model's has its place.
    ///
    /// # Errors
    ///
    /// [`UnsupportedNode`] with the first node that no kernel does.
    pub fn new(plan: &Plan, precision: &GpuPrecision, target: &Target) -> Result<Self, UnsupportedNode> {
        let mut prepared = Self { stored: stored(plan, precision), book: Book::default(), precision: precision.clone() };
        let all = vec![true; plan.outputs.len()];
        for capacity in [Capacity { batch: 1, tokens: 1, is_exact: false }, Capacity { batch: 16, tokens: 64, is_exact: false }] {
            prepared.lower(plan, capacity, &all, target)?;
        }
        Ok(prepared)
    }

    /// The program for batches up to `capacity` that makes the outputs that are `wanted`.
    ///
    /// # Errors
    ///
    /// [`UnsupportedNode`] with the first node that no kernel does at this size.
    pub fn lower(
        &mut self,
        plan: &Plan,
        capacity: Capacity,
        wanted: &[bool],
        target: &Target,
    ) -> Result<Program, UnsupportedNode> {
        too_large(plan, capacity)?;
        let needed = needed(plan, wanted);
        let places = Places::new(plan, &self.stored, capacity, &needed, wanted);
        let mut lower =
            Lower { plan, prepared: self, capacity, places, target, steps: Vec::new(), scratch: 0, has_header: false, node: 0 };
        for (at, node) in plan.nodes.iter().enumerate().filter(|(at, _)| needed.contains(at)) {
            lower.node = at;
            lower.scratch = 0;
            lower.op(node).map_err(|reason| UnsupportedNode {
                node: node.name.clone(),
                operator: node.op.name().into(),
                reason,
            })?;
        }
        let Lower { steps, places, has_header, .. } = lower;
        Ok(Program { steps, places, has_header })
    }
}

/// Kernels count a matrix's elements in 32 bits, and sequences in the grid's second dimension.
fn too_large(plan: &Plan, capacity: Capacity) -> Result<(), UnsupportedNode> {
    let elements = |value: &Value| capacity.rows(value.rows) as u64 * stride(value.width) as u64;
    let most = plan.values.iter().map(elements).max().unwrap_or(0);
    if most > u64::from(u32::MAX) || capacity.batch > MOST_SEQUENCES {
        let reason = format!("a batch of {} sequences and {most} elements is more than kernels count", capacity.batch);
        return Err(UnsupportedNode { node: "model".into(), operator: "batch".into(), reason });
    }
    Ok(())
}

/// The nodes without which what is wanted cannot be made.
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

/// One pass over a plan.
struct Lower<'a> {
    plan: &'a Plan,
    prepared: &'a mut Prepared,
    capacity: Capacity,
    places: Places,
    target: &'a Target,
    steps: Vec<Step>,
    /// Bytes of memory that the node needs for itself.
    scratch: usize,
    has_header: bool,
    node: usize,
}

impl Lower<'_> {
    fn op(&mut self, node: &Node) -> Result<(), String> {
        match &node.op {
            Op::Gemm { .. } => self.product(node),
            Op::Attention { .. } => self.attention(node),
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
                self.copy(rows.rows, (from, columns.from), (to, 0), rows.width);
                Ok(())
            }
        }
    }

    /// Adds a launch; shared memory is the kernel's own.
    fn launch(&mut self, kernel: &'static Kernel, grid: (usize, usize), args: Args) {
        self.launch_with(kernel, grid, kernel.shared, args);
    }

    fn launch_with(&mut self, kernel: &'static Kernel, grid: (usize, usize), shared: u32, args: Args) {
        let blocks = |count: usize| u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let grid = (blocks(grid.0), blocks(grid.1));
        self.steps.push(Step::Launch(Launch { node: self.node, kernel, grid, shared, args }));
    }

    /// How many rows such values have at most.
    const fn most(&self, rows: Rows) -> usize {
        self.capacity.rows(rows)
    }

    /// The header, for kernels that look at sequences.
    fn header(&mut self) -> Address {
        self.has_header = true;
        Address::new(Region::Inputs, 0)
    }

    /// The field of how many rows there are.
    fn rows(&mut self, args: Args, rows: Rows) -> Args {
        let header = if self.capacity.is_exact { None } else { Some(self.header()) };
        args.rows(header, usize::from(rows == Rows::Token), self.most(rows))
    }

    /// Where a value lies, and how.
    fn mat(&self, id: ValueId) -> Mat {
        let Stored { kind, stride, home } = self.prepared.stored[id.0];
        let at = match home {
            Home::Input(at) => Address::new(Region::Inputs, self.places.inputs[at].offset),
            Home::Output(at) => match self.places.unwanted[at] {
                Some(offset) => Address::new(Region::Arena, self.places.arena.bytes() + offset),
                None => Address::new(Region::Outputs, self.places.outputs[at].offset),
            },
            Home::Arena => Address::new(Region::Arena, self.places.arena.place(id).map_or(0, |place| place.offset)),
        };
        Mat { at, stride, kind }
    }

    /// A value as another kind: itself where it is that already, else a copy that is made first.
    fn as_kind(&mut self, id: ValueId, kind: Kind) -> Mat {
        let (mat, value) = (self.mat(id), self.plan.value(id));
        if mat.kind == kind {
            return mat;
        }
        let copy = self.scratch(self.most(value.rows), value.width, kind);
        self.copy(value.rows, (mat, 0), (copy, 0), value.width);
        copy
    }

    /// Memory that this node alone needs, behind what values lie in.
    fn scratch(&mut self, rows: usize, width: usize, kind: Kind) -> Mat {
        let stored = Stored { home: Home::Arena, kind, stride: stride(width) };
        let at = Address::new(Region::Arena, self.places.scratch_from() + self.scratch);
        self.scratch += stored.bytes(rows);
        self.places.scratch = self.places.scratch.max(self.scratch);
        Mat { at, stride: stored.stride, kind }
    }

    fn row(&mut self, id: Option<WeightId>) -> Option<Address> {
        id.map(|id| self.piece(Piece::Row(id)))
    }

    fn piece(&mut self, piece: Piece) -> Address {
        self.prepared.book.place(self.plan, piece)
    }
}
