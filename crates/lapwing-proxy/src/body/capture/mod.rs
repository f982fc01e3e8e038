//! Bounded copies of bodies, for later readers such as a mirror or a cache. A capture never delays its original.
//!
//! [`RequestBody::capture`] and [`ResponseBody::capture`] attach a writer to a body; it is given every frame just
//! before the frame goes on. They return the other end, a [`BodyCapture`]: a future of the [`CapturedBody`], or of the reason why
//! there is none ([`Incomplete`]).
//!
//! # Memory
//!
//! Small pieces are copied into blocks, large ones are referenced. The [`CaptureBudget`] counts the memory that a capture
//! keeps alive, not the bytes it holds: a block by its capacity, a reference by the allocation that it may pin. Hyper cuts
//! the pieces of a body out of shared read buffers, so one piece may pin a whole buffer ([`CaptureLimits::read_buffer`]); a
//! piece is referenced only if it is at least half of what it may pin. Hyper cannot reuse a buffer that is referenced, and
//! allocates another. Beyond the budget of its body, or the one that all captures of the process share, a capture is
//! incomplete and gives its memory back at once.
//!
//! [`RequestBody::capture`]: super::RequestBody::capture
//! [`ResponseBody::capture`]: super::ResponseBody::capture

mod budget;
mod captured;
mod writer;

#[cfg(test)]
mod tests;

pub use budget::{CaptureBudget, CaptureLimits, Incomplete};
pub use captured::{CapturedBody, ReplayBody};
pub(crate) use writer::{AttachedCaptures, capture};
pub use writer::{BodyCapture, capture_whole};
