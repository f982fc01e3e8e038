//! The layers of the stack. `stack.rs` has their order and the reasons for it.

pub(crate) mod admission;
pub(crate) mod cache;
pub(crate) mod deadline;
pub(crate) mod failure_responses;
pub(crate) mod ledger;
pub(crate) mod place;
pub(crate) mod tap;
pub(crate) mod trace;
pub(crate) mod usage_request;

#[cfg(test)]
mod tests;
