//! The interface between a server and a served model: its description, and calls that are answered later.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use crate::model::ExecutorName;
use lapwing_engine::clock::Stamp;
pub use lapwing_engine::placement::{Fallback, FallbackCause, Placement};
use lapwing_onnx::EngineError;
use lapwing_onnx::tensor::{Tensor, TensorSpec};

/// The description of a model, which never changes; where it runs may change ([`Placement`]).
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// The name under which it is served.
    pub name: String,
    /// Its version; usually a number, and compared as one.
    pub version: String,
    /// Who runs it.
    pub executor: ExecutorName,
    /// Why it has no plan, beginning with the node's name; `None` if it has one.
    pub unsupported: Option<String>,
    /// Its inputs, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Its outputs, in the model's order.
    pub outputs: Vec<TensorSpec>,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// One tensor for each input of the model, in any order.
    pub inputs: Vec<Tensor>,
    /// The names of the wanted outputs; empty for all.
    pub outputs: Vec<String>,
    /// When the answer becomes useless.
    pub deadline: Option<Stamp>,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The wanted outputs, in the order of the call (of the model, if the call named none).
    pub outputs: Vec<Tensor>,
    /// Where the time went.
    pub stages: Stages,
    /// The batch in which it ran.
    pub batch: Batched,
    /// Where that batch ran.
    pub placement: Arc<Placement>,
}

/// Where the time of one call went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// From the call to the moment at which its batch was closed: the wait for others, and for a free executor.
    pub queue_ns: u64,
    /// Concatenating the inputs of the batch's calls.
    pub preprocessing_ns: u64,
    /// The model.
    pub forward_ns: u64,
    /// Splitting the outputs among the calls.
    pub postprocessing_ns: u64,
}

/// The batch in which a call ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batched {
    /// How many calls it held, this one included.
    pub calls: usize,
    /// Sequences of all of them; rows where the model has no sequences.
    pub rows: usize,
    /// Tokens that were executed, padding included; rows where the model has no sequences.
    pub executed: usize,
    /// Of those, how many were useful: not masked out.
    pub useful: usize,
    /// FLOPs of the batch; `None` where the model has no plan.
    pub flops: Option<u64>,
    /// FLOPs over the true lengths of its sequences.
    pub useful_flops: Option<u64>,
}

impl Batched {
    /// What part of the executed tokens was padding: at least 0, below 1.
    #[must_use]
    pub fn padding_waste(&self) -> f64 {
        if self.executed == 0 { 0.0 } else { 1.0 - self.useful as f64 / self.executed as f64 }
    }
}

/// Why a call got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// An input is invalid.
    #[error("{tensor}: {reason}")]
    Input {
        /// The tensor's name, or `inputs` and `outputs` for the lists of them.
        tensor: String,
        /// What was expected, and what was given.
        reason: String,
    },
    /// The queue is full.
    #[error("queue: {waiting} calls are waiting, which is the limit")]
    Full {
        /// How many.
        waiting: usize,
    },
    /// The deadline passed, or would have passed before the answer.
    #[error("deadline: passed after {waited_ns} ns in the queue")]
    Deadline {
        /// How long it waited.
        waited_ns: u64,
    },
    /// The model is not warm yet, or is being stopped.
    #[error("model: {reason}")]
    NotReady {
        /// Which of the two.
        reason: String,
    },
    /// The model's device failed, and the model cannot run any more.
    #[error("device: {reason}")]
    Device {
        /// What the device reported.
        reason: String,
    },
    /// The executor failed.
    #[error("model: {reason}")]
    Failed {
        /// The executor's error.
        reason: String,
    },
}

impl From<EngineError> for CallError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Input { tensor, reason } => Self::Input { tensor, reason },
            EngineError::Device { reason } => Self::Device { reason },
            EngineError::Run { reason } => Self::Failed { reason },
            other => Self::Failed { reason: other.to_string() },
        }
    }
}

/// The time of a forward pass as warm-up measured it: `fixed_ns + unit_ns × units`. It stays as it is while calls run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmLine {
    /// The time of any pass, in nanoseconds.
    pub fixed_ns: f64,
    /// The time that each unit adds, in nanoseconds.
    pub unit_ns: f64,
    /// Whether units are tokens; else they are rows.
    pub counts_tokens: bool,
}

/// A pending answer.
pub type Pending = Pin<Box<dyn Future<Output = Result<Answer, CallError>> + Send>>;

/// A model that can be called.
pub trait Servable: Debug + Send + Sync {
    /// Its description.
    fn about(&self) -> &About;
    /// Where it runs now.
    fn placement(&self) -> Arc<Placement>;
    /// Whether it is warm, and can run.
    fn is_ready(&self) -> bool;
    /// What warm-up measured; `None` before its end, and where nothing was measured at two sizes.
    fn warm_line(&self) -> Option<WarmLine> {
        None
    }
    /// Calls it. The call is queued at once, not when the answer is first polled.
    fn infer(&self, call: Call) -> Pending;
}
