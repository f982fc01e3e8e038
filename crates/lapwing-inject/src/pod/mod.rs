//! Pods in the objects of Kubernetes: where they stand, what serves in them and on which port, which Services lead there.

mod known;
mod object;
mod port;
mod server;
mod service;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use self::object::{Object, Pod, items, objects, text};
pub(crate) use self::port::{Declared, FoundPort, declared};
pub(crate) use self::server::{Serving, has_known, serving};
pub(crate) use self::service::{Route, Target, policies, routes};
