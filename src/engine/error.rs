//! What can go wrong with a model: at load time, or with one call's input.

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The bytes are no ONNX model, or it holds an operator that tract does not know.
    #[error("model: cannot be loaded: {reason}")]
    Unreadable {
        /// What tract said, its causes joined by colons.
        reason: String,
    },
    /// The model has another number of inputs or outputs than one.
    #[error("model: expected one input and one output, got {inputs} and {outputs}")]
    Arity {
        /// How many inputs it declares.
        inputs: usize,
        /// How many outputs it declares.
        outputs: usize,
    },
    /// A tensor of the model is not float32 `[rows, width]` with a known width.
    #[error("{tensor}: expected float32 [rows, width] with a fixed width, got {got}")]
    Layout {
        /// The tensor's name in the model.
        tensor: String,
        /// Its type and shape as tract prints them.
        got: String,
    },
    /// The input of a call has another length than its shape asks for, or no rows.
    #[error("{tensor}: expected {expected} values for shape [{rows}, {width}], got {got}")]
    Input {
        /// The input's name in the model.
        tensor: String,
        /// Rows of the call; at least one is needed.
        rows: usize,
        /// The model's input width.
        width: usize,
        /// `rows` × `width`.
        expected: usize,
        /// How many values came.
        got: usize,
    },
    /// tract failed while it ran the model.
    #[error("model: cannot run on shape [{rows}, {width}]: {reason}")]
    Run {
        /// Rows of the call.
        rows: usize,
        /// The model's input width.
        width: usize,
        /// What tract said, its causes joined by colons.
        reason: String,
    },
}
