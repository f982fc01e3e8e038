//! The errors of loading and running a model.

/// A node that cannot be lowered: to a plan, or to the kernels of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node} ({operator}): {reason}")]
pub struct UnsupportedNode {
    /// The node's name.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// Why it cannot be lowered.
    pub reason: String,
}

/// Why a model could not be loaded or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The file cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// Where it was looked for.
        path: String,
        /// The operating system's error.
        reason: String,
    },
    /// A part of the model is invalid, or unknown to its executor.
    #[error("{part}: {reason}")]
    Model {
        /// `file`, `graph`, `node N (Operator)`, `initializer N`, `input N`, `output N`.
        part: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `int8` was requested, and the model has no plan.
    #[error("precision: int8 needs a plan, and the model has none: {0}")]
    NoPlan(UnsupportedNode),
    /// The executor that was named cannot run the model.
    #[error("executor: {executor} cannot run it: {reason}")]
    Executor {
        /// The name of the executor.
        executor: &'static str,
        /// Why not.
        reason: String,
    },
    /// A tensor of a call does not fit the model.
    #[error("{tensor}: {reason}")]
    Input {
        /// Its name, or `inputs` and `outputs` for the lists of them.
        tensor: String,
        /// What was expected, and what was given.
        reason: String,
    },
    /// The device is missing, or failed and no fallback is allowed: the model cannot run any more. An error of one batch is
    /// [`Self::Run`].
    #[error("device: {reason}")]
    Device {
        /// The device (`cuda:0`), and what it or its driver reported.
        reason: String,
    },
    /// The model failed while it ran.
    #[error("model: cannot run: {reason}")]
    Run {
        /// The executor's error.
        reason: String,
    },
}

impl EngineError {
    /// A fault of a part of the model.
    #[must_use]
    pub fn part(part: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Model { part: part.into(), reason: reason.into() }
    }

    /// A fault of a tensor of a call.
    #[must_use]
    pub fn input(tensor: &str, reason: impl Into<String>) -> Self {
        Self::Input { tensor: tensor.to_owned(), reason: reason.into() }
    }
}
