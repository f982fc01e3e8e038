//! The output of the demo: a live table or lines, a summary, and the closing sentence. All figures come from `/stats`.

pub(crate) mod closing;
pub(crate) mod live;
pub(crate) mod table;
pub(crate) mod words;
