//! What can be read of a request and its response: the route, the model, the work, the pace, and what the server reports.

pub mod amend;
mod route;
pub mod servers;
mod tap;

pub use route::{Route, route};
pub use tap::{Protocols, Tap};
