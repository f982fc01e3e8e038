//! How a plan's values are stored on a device: in what kind of number, how far rows lie apart, and in which memory.
//!
//! A row that is wider than one number begins at a multiple of 8 numbers, so that kernels can read 16 bytes at a time.

use super::GpuPrecision;
use crate::plan::{Op, Plan, Type, Value, ValueId};

/// What a matrix's elements are, as kernels number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum Kind {
    /// Single precision.
    F32 = 0,
    /// Half precision.
    F16 = 1,
    /// Signed, 64 bits.
    I64 = 2,
    /// Signed, 32 bits.
    I32 = 3,
    /// A byte, not 0 for true.
    U8 = 4,
    /// Signed, 8 bits.
    S8 = 5,
}

impl Kind {
    /// Bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 => 2,
            Self::I64 => 8,
            Self::U8 | Self::S8 => 1,
        }
    }

    const fn of(kind: Type) -> Self {
        match kind {
            Type::F32 => Self::F32,
            Type::I64 => Self::I64,
            Type::I32 => Self::I32,
            Type::Bool => Self::U8,
        }
    }
}

/// In which memory a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Among what the batch brings, at this place.
    Input(usize),
    /// Among what it is asked for: the first place, if there are several.
    Output(usize),
    /// In the block that all between shares.
    Arena,
}

/// How one value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where.
    pub home: Home,
    /// As what.
    pub kind: Kind,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl Stored {
    /// Bytes of so many rows, at a multiple of 256.
    #[must_use]
    pub const fn bytes(&self, rows: usize) -> usize {
        (rows * self.stride * self.kind.bytes()).next_multiple_of(256)
    }
}

/// Rows that are wider than one number begin at multiples of so many.
pub const ALIGNED: usize = 8;

/// Elements from one row of this width to the next.
#[must_use]
pub const fn stride(width: usize) -> usize {
    if width == 1 { 1 } else { width.next_multiple_of(ALIGNED) }
}

/// How each value of a plan is stored. Outputs are float32, and inputs what they are; what lies between, and what products read
/// of the inputs, is half precision where the precision says so, but for columns (masks, counts), which may be beyond its range, and for what maps and folds
/// make that no product reads.
#[must_use]
pub fn stored(plan: &Plan, precision: &GpuPrecision) -> Vec<Stored> {
    let mut homes = vec![Home::Arena; plan.values.len()];
    for (at, port) in plan.outputs.iter().enumerate().rev() {
        homes[port.value.0] = Home::Output(at);
    }
    for (at, port) in plan.inputs.iter().enumerate() {
        homes[port.value.0] = Home::Input(at);
    }
    let halves = if precision.is_half() { halves(plan) } else { vec![false; plan.values.len()] };
    let of = |(at, value): (usize, &Value)| {
        let kind = match homes[at] {
            Home::Arena | Home::Input(_) if halves[at] && value.kind == Type::F32 => Kind::F16,
            _ => Kind::of(value.kind),
        };
        Stored { home: homes[at], kind, stride: stride(value.width) }
    };
    plan.values.iter().enumerate().map(of).collect()
}

/// Which values are made by, or for, products and attention.
fn halves(plan: &Plan) -> Vec<bool> {
    let mut halves = vec![false; plan.values.len()];
    let mut put = |id: ValueId| halves[id.0] = plan.value(id).width > 1;
    for node in &plan.nodes {
        match &node.op {
            Op::Gemm { x, .. } => {
                put(*x);
                put(node.output);
            }
            Op::Attention { q, k, v, .. } => {
                [q.value, k.value, v.value].into_iter().for_each(&mut put);
                put(node.output);
            }
            Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::Embed { .. } => put(node.output),
            _ => {}
        }
    }
    halves
}
