//! What Prometheus scrapes: every family since the start, written by an [`Encoder`]. Prometheus protobuf, OpenMetrics text and
//! Prometheus text 0.0.4 are here; whoever shows further families writes them between those of [`Scrape`].
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
mod protobuf;
mod scrape;
mod series;
mod text;
mod traffic;
mod work;

pub use encode::{Encoder, ExemplarSample, FamilyHead, HistogramSample, SampleLabels, SampleNumber, count, family, gauge};
pub use format::ExpositionFormat;
pub use native::{MAX_BUCKETS, NativeHistogram};
pub use protobuf::ProtobufEncoder;
pub use scrape::{Extras, Scrape};
pub use series::{MeasureHistogram, ScrapeScope, ScrapedSeries, histogram, seconds};
pub use text::ExpositionTextEncoder;
