//! A warm-up: sends the requests of a file to a running Lapwing, so that its cache has their answers before somebody asks for them.
//!
//! - `requests` reads the file, a recording or a list of requests, and says which to send in which order;
//! - `standing` is what the running Lapwing says of its cache and of how busy its upstreams are;
//! - `send` proves that the upstream gives the same answer to the same question, where that is not known, then asks for each answer once;
//!   `pacing` says when the next request may go; `report` is what came of it.
//!
//! `lapwing warm` and `cache.warm` use it. They differ in how they ask what the running Lapwing says.

mod error;
mod pacing;
mod report;
mod requests;
mod send;
mod standing;
#[cfg(test)]
mod tests;

pub use self::error::WarmError;
pub use self::pacing::WarmPace;
pub use self::report::{WarmProgress, WarmReport};
pub use self::requests::{WarmLimits, WarmRequests, read_warm_requests};
pub use self::send::{WarmClients, warm};
