//! What can be read of a request from its head: the route, the model; and readers of the formats that bodies have.

mod route;
pub mod wire;

pub use route::{Route, route};
