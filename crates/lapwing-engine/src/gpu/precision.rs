//! The precision of products on a GPU. It is always the configured one.

use crate::cpu;
use crate::cpu::gemm::int8::RowQuant;

/// How products are computed; everything else is in single precision.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Precision {
    /// Single precision throughout: each result within 1e-5 · (1 + |r|) of the CPU's.
    #[default]
    Fp32,
    /// Products of factors with 10 fraction bits, summed in single precision: within 2e-3 · (1 + |r|).
    Tf32,
    /// Products of half-precision factors, summed in single precision, and half-precision values between nodes: within
    /// 5e-3 · (1 + |r|), and a cosine of at least 0.9995.
    Fp16,
    /// 8-bit integer products where a node is suited to them, half precision elsewhere: a cosine of at least 0.98. The
    /// vector has one entry for each node of the plan: the static scale of the node's input, or `None` for a scale per
    /// row (dynamic).
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
    /// Int8 with the CPU's calibrated ranges. GPU ranges are symmetric, so that a range is as wide as its farther end.
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

    /// The name in tables, JSON lines and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fp32 => crate::Precision::Fp32.name(),
            Self::Tf32 => crate::Precision::Tf32.name(),
            Self::Fp16 => crate::Precision::Fp16.name(),
            Self::Int8(_) => crate::Precision::Int8.name(),
        }
    }

    /// Whether intermediate values are half precision.
    #[must_use]
    pub const fn is_half(&self) -> bool {
        matches!(self, Self::Fp16 | Self::Int8(_))
    }

    /// Whether single-precision products are rounded to tf32.
    #[must_use]
    pub const fn is_tf32(&self) -> bool {
        matches!(self, Self::Tf32)
    }

    /// The static scale of a node's input, if it has one.
    #[must_use]
    pub fn fixed(&self, node: usize) -> Option<f32> {
        if let Self::Int8(ranges) = self { ranges.get(node).copied().flatten() } else { None }
    }
}
