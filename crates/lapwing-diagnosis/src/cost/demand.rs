//! What a model asks of a device: floating-point operations and bytes.

use serde::{Deserialize, Serialize};

use super::device::NumberFormat;
use lapwing_ledger::Unit;

/// What a forward pass asks of a device: operations by its units, the weights once, and bytes by its units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelDemand {
    /// The unit.
    pub unit: Unit,
    /// Floating-point operations of each unit; a multiply-add is two.
    pub flops_per_unit: f64,
    /// Bytes of the weights, which each pass reads once.
    pub weight_bytes: f64,
    /// Bytes that each unit reads and writes in addition: inputs, outputs, cached keys and values.
    pub bytes_per_unit: f64,
}

impl ModelDemand {
    /// Bytes that a pass of `units` moves at least.
    #[must_use]
    pub fn bytes(&self, units: f64) -> f64 {
        self.weight_bytes + self.bytes_per_unit * units
    }

    /// The demand of the same model, given with numbers of four bytes, in another format.
    #[must_use]
    pub fn in_format(self, format: NumberFormat) -> Self {
        let share = format.bytes() / NumberFormat::Fp32.bytes();
        Self { weight_bytes: self.weight_bytes * share, bytes_per_unit: self.bytes_per_unit * share, ..self }
    }
}
