//! The comparisons, one file for each kind of content. They see decoded values and the rules of the route, and nothing else.

mod aligned;
mod embeddings;
mod fields;
mod generated;
mod hints;
mod json;
mod numbers;
mod ranking;
mod tensors;
mod text;

use super::rules::Rules;
use super::scales::FieldScales;

pub(super) use embeddings::compare_embeddings;
pub(super) use generated::compare_generated;
pub(super) use json::compare_documents;
pub(super) use tensors::compare_tensors;
pub(super) use text::{EditBudget, compare_field};

/// What an answer is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judging<'r> {
    /// Those of its route.
    pub(super) rules: &'r Rules,
    /// How large its fields usually are.
    pub(super) scales: &'r FieldScales,
    /// The time, in seconds since 1970: values that are times of answering are near it.
    pub(super) now_s: f64,
}

#[cfg(test)]
mod tests;
