//! The clients' connections.

mod serve;

pub use serve::{Parts, serve};
