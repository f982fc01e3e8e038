//! What model servers report of themselves outside of bodies: fields of heads and trailers, and their own shapes of spans.

pub mod headers;
pub(super) mod spans;
