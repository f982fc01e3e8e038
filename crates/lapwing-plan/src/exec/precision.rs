//! The number formats of matrix products: as users name them, and as the CPU and a GPU execute them.

use serde::{Deserialize, Serialize};

/// The number format of matrix products. Only an explicit setting selects another than `fp32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    Fp32,
    /// On a GPU, single precision with the operands' fractions cut to 10 bits; on the CPU `fp32`.
    Tf32,
    /// On a GPU, half precision, summed in single precision; on the CPU `fp32`.
    Fp16,
    /// 8-bit integers where a product is suited to them.
    Int8,
}

impl Precision {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Fp32, Self::Tf32, Self::Fp16, Self::Int8];

    /// The name in settings, tables, JSON lines and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Int8 => "int8",
        }
    }

    /// Whether only GPUs have it.
    #[must_use]
    pub const fn is_gpus(self) -> bool {
        matches!(self, Self::Tf32 | Self::Fp16)
    }
}

/// How a row was quantised: value = (byte - zero) * scale.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RowQuant {
    /// The step between two bytes; NaN if the row had a value that is not finite, which makes the whole output row NaN.
    pub scale: f32,
    /// The byte that stands for zero, 0..=255.
    pub zero: i32,
}

/// The number format of matrix products on the CPU. Only an explicit setting selects `Int8`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum CpuPrecision {
    /// Single precision.
    #[default]
    Fp32,
    /// 8-bit integer products where a node is suited to it, with weights quantised by column. The vector has one entry
    /// for each node of the plan: the static range of the node's input, or `None` for a range per row (dynamic).
    Int8(Vec<Option<RowQuant>>),
}

impl From<Precision> for CpuPrecision {
    fn from(precision: Precision) -> Self {
        match precision {
            // tf32 and fp16 exist on GPUs only; a model that falls back to the CPU runs in fp32
            Precision::Fp32 | Precision::Tf32 | Precision::Fp16 => Self::Fp32,
            Precision::Int8 => Self::Int8(Vec::new()),
        }
    }
}

impl CpuPrecision {
    /// The name used in listings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fp32 => Precision::Fp32.name(),
            Self::Int8(_) => Precision::Int8.name(),
        }
    }
}

/// The number format of matrix products on a GPU; everything else is in single precision.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum GpuPrecision {
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

impl From<Precision> for GpuPrecision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Fp32 => Self::Fp32,
            Precision::Tf32 => Self::Tf32,
            Precision::Fp16 => Self::Fp16,
            Precision::Int8 => Self::Int8(Vec::new()),
        }
    }
}

impl GpuPrecision {
    /// Int8 with the CPU's calibrated ranges. GPU ranges are symmetric, so that a range is as wide as its farther end.
    #[must_use]
    pub fn calibrated(precision: &CpuPrecision) -> Self {
        match precision {
            CpuPrecision::Fp32 => Self::Fp32,
            CpuPrecision::Int8(ranges) => {
                let farther = |range: &RowQuant| range.zero.max(255 - range.zero) as f32 * range.scale / 127.0;
                Self::Int8(ranges.iter().map(|range| range.as_ref().map(farther)).collect())
            }
        }
    }

    /// The name in tables, JSON lines and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fp32 => Precision::Fp32.name(),
            Self::Tf32 => Precision::Tf32.name(),
            Self::Fp16 => Precision::Fp16.name(),
            Self::Int8(_) => Precision::Int8.name(),
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
