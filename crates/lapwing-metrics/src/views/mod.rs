//! The JSON of `/stats` and `/exchanges`, and what their queries may ask. Every figure is read from the registry's own counts; nothing
//! here is measured. Durations are nanoseconds.

mod budget;
mod exchanges;
mod pairs;
mod polled;
mod profiler;
mod query;
mod request_work;
mod stats;
mod work;

pub use exchanges::{Exchanges, Waterfall, exchanges};
pub use pairs::{Pairs, slot_key};
pub use profiler::{ProfilerLimits, ProfilerView};
pub use query::{DEFAULT_LIMIT, ExchangeQuery, MAX_LIMIT, Names, QueryError, QueryFields};
pub use stats::{SeriesView, StatsView, series_view};
