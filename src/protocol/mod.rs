//! What can be read of a request and its response: the route, the model, the work, the pace, and what the server reports.

pub mod amend;
#[doc(hidden)]
pub mod check;
pub mod config;
mod detect;
mod facts;
mod families;
mod inputs;
mod media;
mod plan;
mod raw;
mod reader;
mod route;
pub mod servers;
mod tag;
mod tap;
mod tokens;
pub mod wire;

pub use config::Config;
pub use raw::Raw;
pub use route::{Route, route};
pub use tap::{Protocols, Spoken, Tap};
pub use tokens::{ModelError, TokenizerError, Tokenizers};
