//! The comparisons, one file for each kind of content. They see decoded values and the rules of the route, and nothing else.

mod aligned;
mod embeddings;
mod fields;
mod hints;
mod json;
mod numbers;
mod ranking;
mod tensors;
mod text;

use super::rules::{FieldScales, Rules};

pub(crate) use embeddings::compare_embeddings;
pub(crate) use json::compare_documents;
pub(crate) use tensors::compare_tensors;
pub(crate) use text::{EditBudget, compare_field, compare_generated};

/// What an answer is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judging<'r> {
    /// Those of its route.
    pub(crate) rules: &'r Rules,
    /// How large its fields usually are.
    pub(crate) scales: &'r FieldScales,
    /// The time, in seconds since 1970: values that are times of answering are near it.
    pub(crate) now_s: f64,
    /// Whether of tensors the values alone count, and not how the side that serves the model writes them.
    pub(crate) by_value: bool,
}

#[cfg(test)]
mod tests;
