//! How a plan's values are stored on a device: element type, row stride, and location.
//!
//! Rows of more than one element are aligned to 8 elements, so that kernels can read 16 bytes at a time.

use super::GpuPrecision;
use lapwing_plan::plan::{ElementType, Op, Plan, Value, ValueId};

/// The type of a matrix's elements, with the number that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum Kind {
    /// Single precision.
    F32 = 0,
    /// Half precision.
    F16 = 1,
    /// 64-bit signed integers.
    I64 = 2,
    /// 32-bit signed integers.
    I32 = 3,
    /// Booleans: a byte, not 0 for true.
    U8 = 4,
    /// 8-bit signed integers.
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

    const fn of(kind: ElementType) -> Self {
        match kind {
            ElementType::F32 => Self::F32,
            ElementType::I64 => Self::I64,
            ElementType::I32 => Self::I32,
            ElementType::Bool => Self::U8,
        }
    }
}

/// Where a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueLocation {
    /// The input with this index.
    Input(usize),
    /// The output with this index; the first such index if several outputs name it.
    Output(usize),
    /// The arena, which all intermediate values share.
    Arena,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// Where.
    pub location: ValueLocation,
    /// Its element type.
    pub kind: Kind,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl StoredValue {
    /// Size in bytes of `rows` rows, rounded up to a multiple of 256.
    #[must_use]
    pub const fn bytes(&self, rows: usize) -> usize {
        (rows * self.stride * self.kind.bytes()).next_multiple_of(256)
    }
}

/// Row alignment in elements, for rows of more than one element.
pub const ALIGNED: usize = 8;

/// The row stride of rows of this width, in elements.
#[must_use]
pub const fn stride(width: usize) -> usize {
    if width == 1 { 1 } else { width.next_multiple_of(ALIGNED) }
}

/// The storage of each value of a plan. Outputs are float32, and inputs keep their type. Intermediate values, and
/// inputs of products, are half precision if the precision says so. Exceptions are single columns (masks, counts),
/// which may exceed its range, and results of maps and folds that no product reads.
#[must_use]
pub fn stored(plan: &Plan, precision: &GpuPrecision) -> Vec<StoredValue> {
    let mut locations = vec![ValueLocation::Arena; plan.values.len()];
    for (at, port) in plan.outputs.iter().enumerate().rev() {
        locations[port.value.0] = ValueLocation::Output(at);
    }
    for (at, port) in plan.inputs.iter().enumerate() {
        locations[port.value.0] = ValueLocation::Input(at);
    }
    let halves = if precision.is_half() { halves(plan) } else { vec![false; plan.values.len()] };
    let of = |(at, value): (usize, &Value)| {
        let kind = match locations[at] {
            ValueLocation::Arena | ValueLocation::Input(_) if halves[at] && value.kind == ElementType::F32 => Kind::F16,
            _ => Kind::of(value.kind),
        };
        StoredValue { location: locations[at], kind, stride: stride(value.width) }
    };
    plan.values.iter().enumerate().map(of).collect()
}

/// Which values are computed or read by products and attention.
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
