//! How large the numbers of each field are, as the primary's own answers show it: what the default tolerance is relative to.

use rustc_hash::FxHashMap;

/// The typical magnitude of a field: the median over the primary's answers of the mean of |p|. Fields that no answer had are not in it.
#[derive(Clone, Debug, Default)]
pub struct FieldScales(FxHashMap<String, f64>);

impl FieldScales {
    /// Of these fields.
    pub(crate) fn new(fields: impl Iterator<Item = (String, f64)>) -> Self {
        Self(fields.collect())
    }

    /// The scale of a field in an answer whose own numbers have this mean magnitude: the greater of both, so that an answer that is small
    /// by chance is held to what is usual, and a large one to its own.
    pub(crate) fn of(&self, field: &str, own: f64) -> f64 {
        self.0.get(field).map_or(own, |usual| usual.max(own))
    }
}
