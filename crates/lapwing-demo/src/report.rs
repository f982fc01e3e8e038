//! What the demo's clients saw: counts, accuracy and latency in nanoseconds, from their side of the proxy.

use std::fmt;

use hdrhistogram::Histogram;

use lapwing_console::stats::errors;
use lapwing_console::units::duration;

/// The highest latency that is recorded, in nanoseconds; higher ones count as this.
const MAX_NS: u64 = 60_000_000_000;

/// The results of the load.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Requests that ended, well or not.
    pub requests: u64,
    /// Those without a well-formed answer of status 200.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// Rows answered.
    pub rows: u64,
    /// Rows whose best label is the true one.
    pub rows_right: u64,
    /// From the due time (or the write, if the client was idle) to the answer, in nanoseconds with two digits, without errors.
    pub latency: Histogram<u64>,
    /// From the first client's start to the last one's end.
    pub elapsed_ns: u64,
}

#[allow(clippy::expect_used, reason = "constant bounds, and a test builds one")]
impl Default for LoadReport {
    fn default() -> Self {
        let latency = Histogram::new_with_bounds(1_000, MAX_NS, 2).expect("constant bounds are valid");
        Self { requests: 0, errors: 0, first_error: None, rows: 0, rows_right: 0, latency, elapsed_ns: 0 }
    }
}

impl LoadReport {
    /// The share of rows classified right, `0.0..=1.0`; 0 without rows.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        if self.rows == 0 { 0.0 } else { self.rows_right as f64 / self.rows as f64 }
    }

    pub(crate) fn answered(&mut self, latency_ns: u64, rows: usize, right: usize) {
        self.requests += 1;
        self.rows += rows as u64;
        self.rows_right += right as u64;
        self.latency.saturating_record(latency_ns);
    }

    pub(crate) fn failed(&mut self, reason: String) {
        self.requests += 1;
        self.errors += 1;
        self.first_error.get_or_insert(reason);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        self.rows += other.rows;
        self.rows_right += other.rows_right;
        if let Err(error) = self.latency.add(&other.latency) {
            tracing::error!(%error, "latencies of one client are left out");
        }
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = (self.elapsed_ns as f64 / 1e9).max(1e-9);
        let at = |q: f64| duration(self.latency.value_at_quantile(q) as f64);
        writeln!(
            f,
            "load: {} requests in {:.1} s ({:.1}/s), {}; {} rows, {:.1} % classified right",
            self.requests,
            seconds,
            self.requests as f64 / seconds,
            errors(self.errors),
            self.rows,
            self.accuracy() * 100.0
        )?;
        write!(f, "client latency, from when due: p50 {}, p90 {}, p99 {}, max {}", at(0.5), at(0.9), at(0.99), at(1.0))?;
        match &self.first_error {
            Some(reason) => write!(f, "\nfirst error: {reason}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_add_up_and_print() {
        let (mut a, mut b) = (LoadReport::default(), LoadReport::default());
        a.answered(1_500_000, 4, 4);
        b.answered(500_000, 16, 15);
        b.failed("status 502 Bad Gateway: nobody".to_owned());
        b.elapsed_ns = 2_000_000_000;
        a.merge(&b);
        assert_eq!(
            a.to_string(),
            "load: 3 requests in 2.0 s (1.5/s), 1 error; 20 rows, 95.0 % classified right\n\
             client latency, from when due: p50 502 µs, p90 1.51 ms, p99 1.51 ms, max 1.51 ms\n\
             first error: status 502 Bad Gateway: nobody"
        );
    }
}
