//! What entities are to a store, and what the numbers are that are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an entity is to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntityType {
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A text.
    String,
}

/// The type of the numbers that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum FeatureDatatype {
    /// Floating-point numbers of 32 bits.
    #[default]
    Fp32,
    /// Floating-point numbers of 64 bits.
    Fp64,
    /// Integers of 32 bits.
    Int32,
    /// Integers of 64 bits.
    Int64,
}

impl FeatureDatatype {
    /// Its name in the Open Inference Protocol.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
        }
    }
}
