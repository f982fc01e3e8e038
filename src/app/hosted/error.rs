//! Why the engine could not be started.

use std::io;
use std::net::SocketAddr;

use crate::serving::CatalogueError;
use lapwing_engine::onnxruntime::LibraryError;
use lapwing_model::Device;

/// Why a model could not be read.
pub(crate) type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// Why the engine could not be started.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The address could not be listened on.
    #[error("engine.listen: {address}: {cause}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        cause: io::Error,
    },
    /// A model could not be loaded.
    #[error("engine: model {name}, {path}: {cause}")]
    Model {
        /// Its name.
        name: String,
        /// Its file.
        path: String,
        /// What is wrong with it.
        cause: ReadError,
    },
    /// The requested device cannot be used.
    #[error("engine.device: {device}: {reason}")]
    Device {
        /// The setting's value.
        device: Device,
        /// Why it cannot be used.
        reason: String,
    },
    /// The named library cannot be used.
    #[error("engine.ort_lib: {0}")]
    Library(LibraryError),
    /// The models cannot be served together.
    #[error("engine: {0}")]
    Catalogue(#[from] CatalogueError),
    /// Threads cannot be started or pinned.
    #[error("engine: {0}")]
    Threads(String),
}
