//! The comparisons, one file for each kind of content. They see decoded values and the rules of the route, and nothing else.

mod aligned;
mod embeddings;
mod fields;
mod generated;
mod json;
mod numbers;
mod ranking;
mod tensors;
mod text;

pub(super) use embeddings::compare_embeddings;
pub(super) use generated::compare_generated;
pub(super) use json::compare_documents;
pub(super) use tensors::compare_tensors;
pub(super) use text::{EditBudget, compare_field};

#[cfg(test)]
mod tests;
