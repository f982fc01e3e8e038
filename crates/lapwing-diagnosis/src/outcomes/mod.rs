//! How requests of a series end, before how long they take: the ways to fail, counted by blocks of time, and what is said about them.
//!
//! - `FailureKind` are the ways to fail, with the words and the fixes of each, as data;
//! - `timeline` counts them; `verdict` judges a window of them; `interval` is the interval of a share.

mod interval;
mod timeline;
mod verdict;

pub(crate) use super::failure_kind::FailureKind;
pub use interval::{exceeds_share, share_interval};
pub(crate) use timeline::{OutcomeSums, OutcomeTimeline, Unread};
pub(crate) use verdict::{judge, summary};

#[cfg(test)]
mod tests;
