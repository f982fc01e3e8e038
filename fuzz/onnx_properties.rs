//! A property of the importer on any bytes, shared by the fuzz target and the replayed corpus (tests/fuzz_corpus.rs).

use lapwing_model::{Model, ModelOptions};

/// Whether any bytes, read as an ONNX file, are refused with a reason or are a model that can be described.
#[must_use]
pub(crate) fn holds(bytes: &[u8]) -> bool {
    match Model::parse(bytes, &ModelOptions::default()) {
        Ok(model) => matches!(model.executor().name(), "plan" | "rten"),
        Err(error) => !error.to_string().is_empty(),
    }
}
