//! The batch sizes and lengths that a command uses, checked against the model's inputs.

use super::error::ToolError;
use lapwing_model::Model;

/// The shape of a batch: its rows, and the tokens of each if the model has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Rows, or sequences.
    pub(crate) batch: usize,
    /// Tokens of each; `None` if calls choose no length.
    pub(crate) length: Option<usize>,
}

/// The requested sizes, and their defaults.
pub(crate) struct Asked<'a> {
    pub(crate) batch: &'a [u64],
    pub(crate) length: &'a [u64],
    pub(crate) batch_default: &'a [u64],
    pub(crate) length_default: &'a [u64],
}

impl Asked<'_> {
    /// Every batch size at every length, small ones first, without duplicates.
    pub(crate) fn shapes(&self, model: &Model) -> Result<Vec<Shape>, ToolError> {
        let batches = self.batches(model)?;
        let lengths = self.lengths(model)?;
        let of = |length: Option<usize>| batches.iter().map(move |batch| Shape { batch: *batch, length });
        Ok(lengths.into_iter().flat_map(of).collect())
    }

    fn batches(&self, model: &Model) -> Result<Vec<usize>, ToolError> {
        // where one input's first axis is open, that of another has another meaning: layers of a state, the two ends of edges
        let is_open = model.inputs().iter().any(|port| port.shape.first() == Some(&None));
        let fixed = model.inputs().iter().find_map(|port| Some((port, (*port.shape.first()?)?)));
        let Some((port, fixed)) = fixed.filter(|_| !is_open) else {
            return Ok(sorted(if self.batch.is_empty() { self.batch_default } else { self.batch }));
        };
        match self.batch.iter().find(|batch| **batch != fixed as u64) {
            Some(other) => Err(ToolError::argument(
                "batch",
                format!("{other}: the model's input {} has a fixed batch of {fixed}", port.name),
            )),
            None => Ok(vec![fixed]),
        }
    }

    fn lengths(&self, model: &Model) -> Result<Vec<Option<usize>>, ToolError> {
        if !model.inputs().iter().any(|port| port.shape.iter().skip(1).any(Option::is_none)) {
            return Ok(vec![None]);
        }
        let longest = model.longest().unwrap_or(usize::MAX);
        let lengths = if self.length.is_empty() {
            let mut fit = sorted(self.length_default);
            fit.iter_mut().for_each(|length| *length = longest.min(*length));
            fit.dedup();
            fit
        } else {
            sorted(self.length)
        };
        match lengths.iter().find(|length| **length > longest) {
            Some(length) => Err(ToolError::argument("length", format!("{length}: the model's positions end at {longest}"))),
            None => Ok(lengths.into_iter().map(Some).collect()),
        }
    }
}

fn sorted(counts: &[u64]) -> Vec<usize> {
    let mut counts: Vec<usize> = counts.iter().filter_map(|count| usize::try_from(*count).ok()).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}
