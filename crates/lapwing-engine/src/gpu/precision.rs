//! In what numbers a device multiplies. It is never chosen but by who asks for it.

use crate::cpu;
use crate::cpu::gemm::int8::RowQuant;

/// How products are done; all else is in single precision in every case.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Precision {
    /// Single precision throughout: each result within 1e-5 · (1 + |r|) of the processor's.
    #[default]
    Fp32,
    /// Products of numbers that keep 10 bits of their fraction, summed in single precision: within 2e-3 · (1 + |r|).
    Tf32,
    /// Products of half-precision numbers, summed in single precision, and half precision between nodes: within
    /// 5e-3 · (1 + |r|), and a cosine of at least 0.9995.
    Fp16,
    /// Products of 8-bit whole numbers where a node is fit for it, half precision elsewhere: a cosine of at least 0.98. A node's
    /// input is multiplied by what stands here for it (by its place in the plan); where nothing does, each row by its own.
    Int8(Vec<Option<f32>>),
}

impl From<crate::Precision> for Precision {
    fn from(precision: crate::Precision) -> Self {
        match precision {
            crate::Precision::Fp32 => Self::Fp32,
            crate::Precision::Tf32 => Self::Tf32,
            crate::Precision::Fp16 => Self::Fp16,
            crate::Precision::Int8 => Self::Int8(Vec::new()),
        }
    }
}

impl Precision {
    /// 8 bits with the ranges that the processor has: whole numbers are symmetric here, so that a range is as wide as its
    /// farther end.
    #[must_use]
    pub fn calibrated(precision: &cpu::Precision) -> Self {
        match precision {
            cpu::Precision::Fp32 => Self::Fp32,
            cpu::Precision::Int8(ranges) => {
                let farther = |range: &RowQuant| range.zero.max(255 - range.zero) as f32 * range.scale / 127.0;
                Self::Int8(ranges.iter().map(|range| range.as_ref().map(farther)).collect())
            }
        }
    }

    /// The name that tables, JSON lines and metrics have.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fp32 => crate::Precision::Fp32.name(),
            Self::Tf32 => crate::Precision::Tf32.name(),
            Self::Fp16 => crate::Precision::Fp16.name(),
            Self::Int8(_) => crate::Precision::Int8.name(),
        }
    }

    /// Whether values between nodes are half precision.
    #[must_use]
    pub const fn is_half(&self) -> bool {
        matches!(self, Self::Fp16 | Self::Int8(_))
    }

    /// Whether single-precision products are rounded to tf32.
    #[must_use]
    pub const fn is_tf32(&self) -> bool {
        matches!(self, Self::Tf32)
    }

    /// What all rows of a node's input are divided by, if that is fixed.
    #[must_use]
    pub fn fixed(&self, node: usize) -> Option<f32> {
        if let Self::Int8(ranges) = self { ranges.get(node).copied().flatten() } else { None }
    }
}
