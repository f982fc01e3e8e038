//! A call of a model: the inputs and outputs that the model has, a tensor of the call, and why a request cannot become one. Messages
//! name places, types and lengths, and never a value: they go to logs.

use std::sync::Arc;

use bytes::Bytes;

use crate::ShadowDrop;
use crate::pictures::ImageFault;
use lapwing_compare::outputs::{NestedFault, TensorPort};

/// The inputs and outputs of a model, in its order.
#[derive(Clone, Debug, Default)]
pub struct ModelPorts {
    /// What it reads.
    pub inputs: Vec<TensorPort>,
    /// What it answers.
    pub outputs: Vec<TensorPort>,
}

/// A call: JSON, and the tensors as binary data behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedCall {
    /// How many bytes of `body` are JSON: `inference-header-content-length`.
    pub json_bytes: usize,
    /// The whole body.
    pub body: Bytes,
    /// How many tokens each text of the request has; none if it has no texts.
    pub token_counts: Arc<[u32]>,
}

/// A tensor of a call, little-endian.
pub(crate) struct InputTensor<'m> {
    pub(crate) port: &'m TensorPort,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Bytes,
}

/// Why a request is not sent to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingFault {
    /// The body is no JSON, has no such part, or cannot be decompressed.
    #[error("the body cannot be read: {0}")]
    Body(String),
    /// The value of an input is none.
    #[error("{input} {reason}")]
    Value {
        /// The input, and its path.
        input: String,
        /// What is wrong with it.
        reason: String,
        /// As what it is counted.
        drop: ShadowDrop,
    },
    /// The lists do not have the model's shape.
    #[error("{input} has the shape {found:?}, where the model takes {wanted}")]
    Shape {
        /// The input, and its path.
        input: String,
        /// The lengths of the lists, the outermost first.
        found: Vec<usize>,
        /// The model's shape; -1 is any length.
        wanted: String,
    },
    /// The request asks for something else than the mapping has.
    #[error("{path} is not {expected}, for which alone the mapping holds")]
    Parameter {
        /// The path.
        path: String,
        /// The value that the configuration has.
        expected: String,
    },
    /// A picture cannot be prepared.
    #[error("{input} {fault}")]
    Image {
        /// The input.
        input: String,
        /// What is wrong with it.
        fault: ImageFault,
    },
    /// The texts cannot be tokenized.
    #[error("texts: {0}")]
    Tokens(String),
    /// The tensors take too much.
    #[error("{input} takes more than {limit} bytes together with the inputs before it")]
    TooLarge {
        /// The input, and its path.
        input: String,
        /// How much there may be.
        limit: usize,
    },
}

impl MappingFault {
    /// A value that is no tensor or text; `limit` is that of all inputs together.
    pub(crate) fn of_value(input: String, fault: &NestedFault, limit: usize) -> Self {
        let drop = match fault {
            NestedFault::Missing(_) => ShadowDrop::MappingMissing,
            NestedFault::Ragged { .. } | NestedFault::Mixed(_) => ShadowDrop::MappingRagged,
            NestedFault::Element { .. } | NestedFault::Labels(_) => ShadowDrop::MappingType,
            NestedFault::Deep => ShadowDrop::MappingShape,
            NestedFault::TooLarge(_) => return Self::TooLarge { input, limit },
        };
        Self::Value { input, reason: fault.to_string(), drop }
    }

    /// As what the copy is counted that is not sent.
    #[must_use]
    pub const fn drop_reason(&self) -> ShadowDrop {
        match self {
            Self::Body(_) => ShadowDrop::MappingBody,
            Self::Value { drop, .. } => *drop,
            Self::Shape { .. } => ShadowDrop::MappingShape,
            Self::Parameter { .. } => ShadowDrop::MappingParameter,
            Self::Image { .. } => ShadowDrop::MappingImage,
            Self::Tokens(_) => ShadowDrop::MappingTokens,
            Self::TooLarge { .. } => ShadowDrop::MappingTooLarge,
        }
    }
}
