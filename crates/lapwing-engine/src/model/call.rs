//! Calls of a model: their size, and the result of several that ran as one batch.

use smallvec::SmallVec;

use crate::tensor::Tensor;

/// The size of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallWork {
    /// Sequences; rows where the model has none.
    pub rows: usize,
    /// Tokens of all sequences, masked-out tokens included; rows where the model has no sequences.
    pub executed: usize,
    /// Tokens that are not masked out.
    pub useful: usize,
    /// FLOPs of executed tokens, and of useful ones; `None` where the model has no plan.
    pub flops: Option<(u64, u64)>,
}

/// The outputs of a batch, and where its time went.
#[derive(Clone, Debug, Default)]
pub struct BatchResult {
    /// The outputs of each call, in the model's order.
    pub outputs: Vec<Vec<Tensor>>,
    /// The time to concatenate the inputs, in nanoseconds.
    pub preprocessing_ns: u64,
    /// The time of the model, in nanoseconds.
    pub forward_ns: u64,
    /// The time to split the outputs, in nanoseconds.
    pub postprocessing_ns: u64,
}

/// Which outputs are wanted, in the model's order.
pub type WantedOutputs = SmallVec<[bool; 8]>;
