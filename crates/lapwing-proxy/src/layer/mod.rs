//! The layers of the stack, one file each. `proxy/stack.rs` has their order and the reasons for it.

pub(crate) mod admit;
pub(crate) mod amend;
pub(crate) mod buffered_response;
pub(crate) mod classify;
pub(crate) mod ledger;
pub(crate) mod normalise;
pub(crate) mod rescue;
pub(crate) mod shadow;
pub(crate) mod trace;

#[cfg(test)]
mod tests;
