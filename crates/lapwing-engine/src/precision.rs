//! In what numbers products are done.

use serde::{Deserialize, Serialize};

/// In what numbers products are done. It is never chosen but by who asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    Fp32,
    /// On a GPU, single precision with the fraction of what is multiplied cut to 10 bits; on the processor `fp32`.
    Tf32,
    /// On a GPU, half precision, summed in single; on the processor `fp32`.
    Fp16,
    /// 8-bit whole numbers where a product is fit for it.
    Int8,
}

impl Precision {
    /// All of them.
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

    /// Whether a GPU alone has it.
    #[must_use]
    pub const fn is_gpus(self) -> bool {
        matches!(self, Self::Tf32 | Self::Fp16)
    }
}
