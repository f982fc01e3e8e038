//! Why a replay has no report.

use lapwing_settings::Fault;
use lapwing_shadow::recording::FileError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The arguments do not fit together.
    #[error("{0}")]
    Usage(String),
    /// The settings have faults.
    #[error("faults in the settings")]
    Settings(Vec<Fault>),
    /// The file cannot be used.
    #[error("{0} {1}")]
    File(String, FileError),
    /// Something could not be started or written.
    #[error("{0}")]
    Failed(String),
}
