//! Which stage is to blame for a route's latency, how sure the figures make that, and what to do first.
//!
//! - `report` is what is said: verdicts with their evidence, of every series;
//! - `bound` names what may limit a route, and the causes behind it;
//! - `diagnostician` keeps what is needed of each exchange, bounded, and diagnoses.
//!
//! Nothing here is on the request path: the aggregator records merged exchanges.

mod bound;
mod diagnostician;
mod report;

pub use bound::{Bound, Cause};
pub use diagnostician::{BoundTotals, Diagnostician};
pub use report::{Diagnosis, Evidence, MeasuredBudget, Missing, RouteDiagnosis, Status, TailShare, Verdict};
