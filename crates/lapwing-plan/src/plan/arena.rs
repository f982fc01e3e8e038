//! The memory layout of a run: one block for all intermediate values, in which values with disjoint lifetimes share
//! memory. Inputs and outputs are stored elsewhere.

use super::{BatchSize, Plan, ValueId};

/// Alignment in bytes: a cache line, and an AVX-512 register.
const ALIGN: usize = 64;

/// The location of a value in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRange {
    /// Its first byte.
    pub offset: usize,
    /// Its size in bytes.
    pub bytes: usize,
}

/// The layout of a plan's intermediate values for batches up to some size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    places: Vec<Option<ArenaRange>>,
    bytes: usize,
}

impl Arena {
    /// Lays out the values of `plan` for batches up to `size`. Large values are placed first, each at the lowest offset
    /// that is free during its lifetime.
    #[must_use]
    pub fn new(plan: &Plan, size: BatchSize) -> Self {
        Self::sized(plan, |id| bytes(plan, size, id))
    }

    /// Like `new`, for values of the given sizes in bytes, which must be multiples of the alignment.
    #[must_use]
    pub fn sized(plan: &Plan, bytes: impl Fn(ValueId) -> usize) -> Self {
        let lives = lives(plan);
        let mut order: Vec<(usize, ValueId)> =
            (0..plan.values.len()).filter(|id| lives[*id].is_some()).map(|id| (bytes(ValueId(id)), ValueId(id))).collect();
        order.sort_by(|a, b| b.cmp(a));
        let mut places: Vec<Option<ArenaRange>> = vec![None; plan.values.len()];
        let mut taken: Vec<(usize, usize, (usize, usize))> = Vec::new();
        let mut end = 0;
        for (bytes, id) in order {
            let Some((from, to)) = lives[id.0] else { continue };
            let mut busy: Vec<(usize, usize)> =
                taken.iter().filter(|(.., (f, t))| *f <= to && from <= *t).map(|(offset, bytes, _)| (*offset, *bytes)).collect();
            busy.sort_unstable();
            let offset = first_gap(&busy, bytes);
            places[id.0] = Some(ArenaRange { offset, bytes });
            taken.push((offset, bytes, (from, to)));
            end = end.max(offset + bytes);
        }
        Self { places, bytes: end }
    }

    /// The location of a value; `None` for inputs and outputs.
    #[must_use]
    pub fn place(&self, id: ValueId) -> Option<ArenaRange> {
        self.places.get(id.0).copied().flatten()
    }

    /// Size of the block in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Two live values that share bytes, if there are any.
    #[must_use]
    pub fn overlap(&self, plan: &Plan) -> Option<(ValueId, ValueId)> {
        let lives = lives(plan);
        let placed = || (0..self.places.len()).filter_map(|id| Some((id, self.places[id]?, lives[id]?)));
        placed().find_map(|(a, one, (from, to))| {
            let meets = |(b, other, (f, t)): (usize, ArenaRange, (usize, usize))| {
                let in_time = f <= to && from <= t;
                let in_space = other.offset < one.offset + one.bytes && one.offset < other.offset + other.bytes;
                (a < b && in_time && in_space).then_some((ValueId(a), ValueId(b)))
            };
            placed().find_map(meets)
        })
    }
}

/// The lowest offset at which `bytes` are free between the occupied ranges, which are sorted.
fn first_gap(busy: &[(usize, usize)], bytes: usize) -> usize {
    let mut at = 0;
    for (offset, taken) in busy {
        if at + bytes <= *offset {
            return at;
        }
        at = at.max(offset + taken);
    }
    at
}

fn bytes(plan: &Plan, size: BatchSize, id: ValueId) -> usize {
    let value = plan.value(id);
    (size.rows(value.rows) * value.width * value.kind.bytes()).next_multiple_of(ALIGN)
}

/// The lifetime of each value, from its first to its last node; `None` for values stored elsewhere, and for values that
/// no node computes.
fn lives(plan: &Plan) -> Vec<Option<(usize, usize)>> {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; plan.values.len()];
    for (at, node) in plan.nodes.iter().enumerate() {
        lives[node.output.0] = Some((at, at));
        for read in node.op.reads() {
            if let Some((_, to)) = &mut lives[read.0] {
                *to = at;
            }
        }
    }
    for port in plan.inputs.iter().chain(&plan.outputs) {
        lives[port.value.0] = None;
    }
    lives
}
