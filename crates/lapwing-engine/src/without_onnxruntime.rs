//! Replaces `onnxruntime` in a build without that feature: the library can be looked for, and the answer is that this build does not use it.
//! The other types have no values.

use std::path::Path;

use crate::cpu::threads::Threads;
use crate::placement::OrtProvider;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, ModelSource};

/// Why there is no library to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this build was made without the feature `onnxruntime`")]
pub struct LibraryError;

impl LibraryError {
    /// The error that another process told of, which is this one.
    #[must_use]
    pub fn told(_: String) -> Self {
        Self
    }
}

/// ONNX Runtime's library.
#[derive(Clone, Copy, Debug)]
pub enum Runtime {}

impl Runtime {
    /// Looks for the library.
    ///
    /// # Errors
    ///
    /// Always [`LibraryError`].
    pub const fn find(_: Option<&Path>) -> Result<Self, LibraryError> {
        Err(LibraryError)
    }

    /// The library's file.
    #[must_use]
    pub const fn path(&self) -> &Path {
        match *self {}
    }

    /// Its version.
    #[must_use]
    pub const fn version(&self) -> &str {
        match *self {}
    }

    /// Where it was found.
    #[must_use]
    pub const fn origin(&self) -> &'static str {
        match *self {}
    }

    /// Libraries that come before it.
    #[must_use]
    pub const fn passed_over(&self) -> &[String] {
        match *self {}
    }

    /// The execution providers.
    #[must_use]
    pub const fn providers(&self) -> &[String] {
        match *self {}
    }
}

/// A model that ONNX Runtime has loaded.
#[derive(Clone, Copy, Debug)]
pub enum Session {}

/// The outputs of one call, and where its time went, in nanoseconds.
#[derive(Clone, Debug)]
pub struct SessionRun {
    /// The outputs in the model's order.
    pub outputs: Vec<Tensor>,
    /// Handing the inputs over.
    pub input_ns: u64,
    /// The model.
    pub forward_ns: u64,
    /// Taking the outputs over.
    pub output_ns: u64,
}

impl Session {
    /// Loads a model.
    ///
    /// # Errors
    ///
    /// None: there is no library.
    pub const fn load(runtime: &Runtime, _: &ModelSource, _: &Threads, _: OrtProvider) -> Result<Self, EngineError> {
        match *runtime {}
    }

    /// The inputs.
    #[must_use]
    pub const fn inputs(&self) -> &[TensorSpec] {
        match *self {}
    }

    /// The outputs.
    #[must_use]
    pub const fn outputs(&self) -> &[TensorSpec] {
        match *self {}
    }

    /// Runs one call.
    ///
    /// # Errors
    ///
    /// None: there is no session.
    pub const fn run(&self, _: &[Tensor], _: &[bool]) -> Result<SessionRun, EngineError> {
        match *self {}
    }
}
