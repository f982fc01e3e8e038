//! ONNX Runtime by its shared library, which is found when the process runs: nothing of it is linked or shipped.
//!
//! [`Runtime::find`] looks for the library and asks for its version before anything of it is used, so that one that is missing, broken or too
//! old is an error in words. [`Session`] runs one model, on the CPU unless another provider is named. Everything that takes a model or a
//! tensor lets ONNX Runtime have the memory that the caller holds.
//!
//! It never downloads anything, sends no telemetry, and uses no execution provider but the CPU's and the one that it is asked for: a session
//! whose provider is missing is an error.

mod elements;
mod elf;
mod library;
mod search;
mod session;

pub use library::{LibraryError, Runtime};
pub use session::{Session, SessionRun};
