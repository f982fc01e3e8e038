//! What the demo shows: a live table or lines, a summary, and the closing sentence. All of it is read from `/stats`, as a user would.

pub(super) mod closing;
pub(super) mod live;
pub(super) mod stats;
pub(super) mod table;
pub(super) mod units;
pub(super) mod words;
