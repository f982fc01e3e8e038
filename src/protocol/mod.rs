//! What can be read of a request from its head: the route, the model.

mod route;

pub use route::{Route, route};
