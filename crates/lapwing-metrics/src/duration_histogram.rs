//! A histogram of durations that belongs to no series, with exact count, sum and maximum; for parts that keep their own figures.

use super::buckets::REQUEST_BOUNDS_NS;
use super::cells::Cells;
use super::exponential::ExponentialBuckets;
use super::exposition::{HistogramSample, NativeHistogram, seconds};
use super::layout::Layout;
use super::snapshot::{Distribution, HistogramScratch};

/// Durations since the start, by the layout of all others ([`Layout::Time`]).
#[derive(Debug)]
pub struct DurationHistogram {
    cells: Cells,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

/// What a scrape shows of one.
#[derive(Debug)]
pub struct ScrapedDurations {
    count: u64,
    sum: f64,
    buckets: Vec<(f64, u64)>,
    native: Option<NativeHistogram>,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self { cells: Cells::new(), count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl DurationHistogram {
    /// Records a duration.
    pub fn record(&mut self, ns: u64) {
        self.cells.record(Layout::Time.cell(ns));
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Count, mean, quantiles and maximum.
    #[must_use]
    pub fn distribution(&self, scratch: &mut HistogramScratch) -> Distribution {
        if self.count == 0 {
            return Distribution::default();
        }
        let [p50_ns, p90_ns, p99_ns, p999_ns] = scratch.quantiles_of(self.counts(), self.max_ns);
        let (count, max_ns) = (self.count, self.max_ns);
        Distribution { count, mean_ns: self.sum_ns / count, p50_ns, p90_ns, p99_ns, p999_ns, max_ns }
    }

    /// Its buckets in seconds; native ones too where the format has them.
    #[must_use]
    pub fn scraped(&self, native_schema: Option<i8>) -> ScrapedDurations {
        let mut buckets: Vec<_> =
            REQUEST_BOUNDS_NS.iter().map(|bound| (seconds(*bound), 0)).chain([(f64::INFINITY, 0)]).collect();
        for (lowest, count) in self.counts() {
            let at = REQUEST_BOUNDS_NS.partition_point(|bound| lowest > *bound);
            buckets[at].1 += count;
        }
        let native = native_schema.map(|schema| {
            let mut cells = Vec::new();
            self.cells.read(0, true, &mut cells);
            NativeHistogram::of(ExponentialBuckets::of(Layout::Time, &cells, schema, 1e9))
        });
        ScrapedDurations { count: self.count, sum: seconds(self.sum_ns), buckets, native }
    }

    /// The lowest value of each cell, in rising order, and how many values are in it.
    fn counts(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let mut cells = Vec::new();
        self.cells.read(0, true, &mut cells);
        cells.into_iter().map(|count| (Layout::Time.lowest(count.key as u16), count.count))
    }
}

impl ScrapedDurations {
    /// The sample of it.
    #[must_use]
    pub fn sample(&self) -> HistogramSample<'_> {
        let Self { count, sum, buckets, native } = self;
        HistogramSample { count: *count, sum: *sum, buckets, native: native.as_ref(), exemplars: &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_exact_sums_and_the_quantiles_and_buckets_of_the_others() {
        let mut histogram = DurationHistogram::default();
        (1..=100).for_each(|ms| histogram.record(ms * 1_000_000));
        let of = histogram.distribution(&mut HistogramScratch::default());
        assert_eq!((of.count, of.mean_ns, of.max_ns), (100, 50_500_000, 100_000_000));
        assert!((50_000_000..=50_050_000).contains(&of.p50_ns) && (99_000_000..=99_099_000).contains(&of.p99_ns), "{of:?}");
        let scraped = histogram.scraped(Some(5));
        let sample = scraped.sample();
        assert_eq!((sample.count, sample.sum), (100, 5.05));
        assert_eq!(sample.buckets.iter().map(|(_, count)| count).sum::<u64>(), 100);
        assert_eq!(sample.cumulative().find(|(bound, ..)| *bound == 0.05).map(|(_, count, _)| count), Some(50));
        let native = sample.native.unwrap().exponential();
        assert_eq!(native.zero_count + native.buckets.iter().map(|(_, count)| count).sum::<u64>(), 100);
    }
}
