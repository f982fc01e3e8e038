//! One request's account: stages, spans, sources, outcome, identity and the law that time is conserved.
//!
//! Everything here is plain data with no I/O; every other module may use it.

mod account;
mod claim;
pub mod clock;
mod exchange;
mod identity;
mod names;
mod outcome;
mod record;
mod stage;

pub use account::Account;
pub(crate) use claim::each_instant;
pub use claim::{Claim, conserve};
pub use clock::Stamp;
pub use exchange::{Exchange, TracedSpan};
pub use identity::{SpanId, TraceContext, TraceId, TraceMark};
pub use names::{Name, Names};
pub use outcome::{Kind, Outcome};
pub use record::{Event, Ledger, Report, SeriesKey, Span, Window};
pub use stage::{Source, Stage};
