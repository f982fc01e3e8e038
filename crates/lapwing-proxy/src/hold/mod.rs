//! The bounds within which a request may be held until its body is known, for those who decide by it where the request goes. Past a bound
//! a request passes as it came.
//!
//! Who holds a request is the caller of `body::hold`; nothing here does.

mod config;
mod memory;
mod passed;

pub use config::Config;
pub(crate) use memory::HeldPieces;
pub(crate) use passed::HoldPassed;
