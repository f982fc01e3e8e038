//! The errors of `lapwing engine`'s commands.

use std::io;

use lapwing_onnx::EngineError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// The model is at fault.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An argument does not fit the model or the machine.
    #[error("{argument}: {reason}")]
    Argument {
        /// Its name, without dashes.
        argument: String,
        /// Its value, and what is wrong with it.
        reason: String,
    },
    /// The output cannot be written.
    #[error("output: {0}")]
    Output(#[from] io::Error),
    /// Another error, in its own words: of threads, peaks, runs or comparisons.
    #[error("{0}")]
    Told(String),
}

impl ToolError {
    pub(crate) fn argument(argument: &str, reason: impl Into<String>) -> Self {
        Self::Argument { argument: argument.to_owned(), reason: reason.into() }
    }

    pub(crate) fn told(error: impl std::fmt::Display) -> Self {
        Self::Told(error.to_string())
    }

    /// Whether the reader of the output closed its end, which is not an error.
    pub(crate) fn is_nobody_listening(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
