//! The output of the demo: a live table or lines, a summary, and the closing sentence. All figures come from `/stats`.

pub(super) mod closing;
pub(super) mod live;
mod stats;
pub(super) mod table;
pub(super) mod words;
