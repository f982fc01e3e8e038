//! Why a command about a model ends early.

use std::io;

use lapwing_engine::EngineError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    /// The model.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An argument that does not fit the model or the machine.
    #[error("{argument}: {reason}")]
    Argument {
        /// Which, without dashes.
        argument: String,
        /// Its value, and what is wrong about it.
        reason: String,
    },
    /// Nobody takes the output.
    #[error("output: {0}")]
    Output(#[from] io::Error),
    /// Threads, peaks, runs and comparisons, by their own words.
    #[error("{0}")]
    Told(String),
}

impl ToolError {
    pub(super) fn argument(argument: &str, reason: impl Into<String>) -> Self {
        Self::Argument { argument: argument.to_owned(), reason: reason.into() }
    }

    pub(super) fn told(error: impl std::fmt::Display) -> Self {
        Self::Told(error.to_string())
    }

    /// Whether the reader of the output went away, which is nobody's fault.
    pub(super) fn is_nobody_listening(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
