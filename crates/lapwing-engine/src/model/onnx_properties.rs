//! A property of the importer on any bytes, shared by the replayed corpus and the fuzz target; for tests only.

use super::{Model, ModelOptions};

/// Whether any bytes, read as an ONNX file, are refused with a reason or are a model that can be described.
#[must_use]
pub fn holds(bytes: &[u8]) -> bool {
    match Model::parse(bytes, &ModelOptions::default()) {
        Ok(model) => matches!(model.executor(), "plan" | "tract"),
        Err(error) => !error.to_string().is_empty(),
    }
}
