//! What Prometheus scrapes: every family since the start, written by an [`Encoder`]. OpenMetrics text and Prometheus text 0.0.4 are
//! here; other crates write further families between those of [`Scrape`].
//!
//! Buckets are counted from the same HDR cells that `/stats` reads, so the figures agree. A series is copied out of the registry
//! under a lock of microseconds; what follows is done outside of it, family by family. Durations are seconds here, as is the custom
//! in Prometheus.

mod budget;
mod debt;
mod encode;
mod format;
mod native;
mod process;
mod scrape;
mod series;
mod text;
mod traffic;
mod work;

pub use encode::{Encoder, ExemplarSample, FamilyHead, HistogramSample, SampleLabels, SampleNumber, count, family, gauge};
pub use format::ExpositionFormat;
pub use native::{MAX_BUCKETS, NativeHistogram};
pub use scrape::{Extras, Scrape};
pub use series::{MeasureHistogram, ScrapeScope, ScrapedSeries, histogram, seconds};
pub use text::ExpositionTextEncoder;
