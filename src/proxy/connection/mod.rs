//! A connection, a client's or the upstream's: the socket that is stamped, its deadlines, its waits for a slow client.

pub(crate) mod client_waits;
pub(crate) mod lazy_deadline;
pub(crate) mod meter;
pub(crate) mod metered;
mod serve;

pub use serve::{ConnectionSettings, Parts, serve};
