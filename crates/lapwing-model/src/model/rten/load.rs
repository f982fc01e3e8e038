//! Loads a file into rten, whose panics are errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ::rten::{LoadError, Model, ModelOptions as LoadOptions};

use super::words;
use lapwing_onnx::EngineError;

/// Loads what was prepared.
pub(crate) fn load(
    bytes: Vec<u8>,
    external: Vec<(String, Vec<u8>)>,
    optimised: bool,
) -> Result<Result<Model, LoadError>, EngineError> {
    let loaded = catch_unwind(AssertUnwindSafe(|| {
        let mut options = LoadOptions::with_all_ops();
        options.enable_optimization(optimised).prepack_weights(true);
        for (name, data) in external {
            options.external_data(&name, data);
        }
        options.load(bytes)
    }));
    loaded.map_err(|panic| EngineError::part("graph", format!("rten cannot load it: {}", words::panic(&*panic))))
}
