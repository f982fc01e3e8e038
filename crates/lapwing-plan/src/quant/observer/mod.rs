//! Finds the static range of a product's input from the rows of a calibration set: one scale and zero point for all
//! rows, with the least mean squared error, if one range is accurate enough for all.
//!
//! A step of `s` inside the range costs `s²/12` a value, on average; a value outside costs its squared distance from
//! the range. Zero is represented exactly and costs nothing.

#[cfg(test)]
mod tests;

use super::histogram::Histogram;
use crate::exec::RowQuant;

/// If a static range costs more than a thousandth of the inputs' power (30 dB), each row keeps a range of its own.
/// Measured on a sentence encoder: with static ranges everywhere, the worst token's cosine to single precision was
/// 0.963; with this limit, 0.981; with a range per row everywhere, 0.992.
pub const LEAST_FIXED_DB: f64 = 30.0;

/// How a static range is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RangeMethod {
    /// From the smallest to the largest value.
    MinMax,
    /// Between two percentiles: the value with this many percent below it, and the one with as many above it; above 50,
    /// at most 100.
    Percentile(f64),
    /// The range with the least mean squared error among fractions of the full one, and the percentiles 99.9, 99.99 and
    /// 99.999.
    LeastError,
}

/// A static range, and its error on the calibration rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaticRange {
    /// Its scale and zero point, as the int8 kernels take them.
    pub quant: RowQuant,
    /// Its low end, at most zero.
    pub low: f32,
    /// Its high end, at least zero.
    pub high: f32,
    /// The mean squared error per value.
    pub squared_error: f64,
    /// Signal to noise in decibels: ten times the decimal logarithm of the values' mean square divided by that error;
    /// infinite without error.
    pub signal_db: f64,
}

/// Why there is no range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ObserverError {
    /// A value is infinite or NaN.
    #[error("calibration value {element} of a product's input is not finite")]
    NotFinite {
        /// Its index in the slice that was passed.
        element: usize,
    },
    /// There were no values.
    #[error("no calibration row reached the product")]
    Empty,
    /// The percentile is out of range.
    #[error("a percentile of {percent} is not in 50..=100")]
    Percentile {
        /// The percentile.
        percent: f64,
    },
}

/// Collects the input values of one product.
#[derive(Clone, Debug)]
pub struct RangeObserver {
    histogram: Histogram,
    least: f32,
    most: f32,
    count: u64,
    squares: f64,
}

impl Default for RangeObserver {
    fn default() -> Self {
        Self::new()
    }
}

impl RangeObserver {
    /// An empty observer. It takes 64 KiB, however many values it collects.
    #[must_use]
    pub fn new() -> Self {
        Self { histogram: Histogram::new(), least: 0.0, most: 0.0, count: 0, squares: 0.0 }
    }

    /// Adds the values of any number of rows.
    ///
    /// # Errors
    /// A value is not finite; none of the values is added then.
    pub fn add(&mut self, values: &[f32]) -> Result<(), ObserverError> {
        if let Some(element) = values.iter().position(|value| !value.is_finite()) {
            return Err(ObserverError::NotFinite { element });
        }
        for value in values {
            self.least = self.least.min(*value);
            self.most = self.most.max(*value);
            self.squares += f64::from(*value) * f64::from(*value);
        }
        self.count += values.len() as u64;
        self.histogram.add(values);
        Ok(())
    }

    /// Number of values added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The static range, or `None` if its error exceeds [`LEAST_FIXED_DB`] and each row should keep its own.
    ///
    /// # Errors
    /// There were no values.
    pub fn fixed(&self) -> Result<Option<RowQuant>, ObserverError> {
        let chosen = self.choose(RangeMethod::LeastError)?;
        Ok((chosen.signal_db >= LEAST_FIXED_DB).then_some(chosen.quant))
    }

    /// The range by `clip`, and its error.
    ///
    /// # Errors
    /// There were no values, or the percentile is out of range.
    pub fn choose(&self, clip: RangeMethod) -> Result<StaticRange, ObserverError> {
        if self.count == 0 {
            return Err(ObserverError::Empty);
        }
        let sums = Sums::new(&self.histogram);
        match clip {
            RangeMethod::MinMax => Ok(self.cost(&sums, self.least, self.most)),
            RangeMethod::Percentile(percent) => self.percentile(&sums, percent),
            RangeMethod::LeastError => self.least_error(&sums),
        }
    }

    fn percentile(&self, sums: &Sums, percent: f64) -> Result<StaticRange, ObserverError> {
        if !(percent > 50.0 && percent <= 100.0) {
            return Err(ObserverError::Percentile { percent });
        }
        let outside = (self.count as f64 * (1.0 - percent / 100.0)).floor();
        let (low, high) = sums.between(outside);
        Ok(self.cost(sums, (low as f32).max(self.least), (high as f32).min(self.most)))
    }

    fn least_error(&self, sums: &Sums) -> Result<StaticRange, ObserverError> {
        // Tries each end separately, from the full range down to a hundredth in steps of a fifteenth.
        let shares = || (0..64).map(|step| 0.93f32.powi(step));
        let mut best = self.cost(sums, self.least, self.most);
        let mut consider = |candidate: StaticRange| {
            if candidate.squared_error < best.squared_error {
                best = candidate;
            }
        };
        for low in shares() {
            for high in shares() {
                consider(self.cost(sums, self.least * low, self.most * high));
            }
        }
        for percent in [99.9, 99.99, 99.999] {
            consider(self.percentile(sums, percent)?);
        }
        Ok(best)
    }

    /// The error of the range from `low` to `high`.
    fn cost(&self, sums: &Sums, low: f32, high: f32) -> StaticRange {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let quant = quant_of(low, high);
        let step = f64::from(quant.scale);
        let (outside, distance) = sums.outside(f64::from(low), f64::from(high));
        let inside = (sums.count - outside).max(0.0);
        let noise = (inside * step * step / 12.0 + distance) / self.count as f64;
        // All zeros: a range of zero width is exact.
        let squared_error = if high > low { noise } else { distance / self.count as f64 };
        let signal = self.squares / self.count as f64;
        let signal_db = if squared_error > 0.0 { 10.0 * (signal / squared_error).log10() } else { f64::INFINITY };
        StaticRange { quant, low, high, squared_error, signal_db }
    }
}

/// Scale and zero point of a range that contains zero, computed as the kernels do for a row.
fn quant_of(low: f32, high: f32) -> RowQuant {
    // Divides first, so that a range wider than f32 does not overflow.
    let scale = high / 255.0 - low / 255.0;
    if scale < 1e-36 {
        return RowQuant { scale: 1.0, zero: 0 };
    }
    RowQuant { scale, zero: (-low / scale).round_ties_even().clamp(0.0, 255.0) as i32 }
}

/// Prefix sums over the bins, so that the error outside a range takes constant time.
struct Sums {
    middles: Vec<f64>,
    /// For each bin, over all lower bins: the number of values, their sum, and the sum of their squares.
    below: Vec<[f64; 3]>,
    /// Number of values that are not zero.
    count: f64,
}

impl Sums {
    fn new(histogram: &Histogram) -> Self {
        let (mut middles, mut below, mut sum) = (Vec::new(), vec![[0.0; 3]], [0.0; 3]);
        for bin in histogram.bins() {
            let (count, middle) = (bin.count as f64, bin.middle);
            sum = [sum[0] + count, sum[1] + count * middle, sum[2] + count * middle * middle];
            middles.push(middle);
            below.push(sum);
        }
        Self { middles, below, count: sum[0] }
    }

    /// The number of values outside of the range, and the sum of their squared distances from it.
    fn outside(&self, low: f64, high: f64) -> (f64, f64) {
        let all = self.below.last().copied().unwrap_or_default();
        let under = self.below.get(self.middles.partition_point(|middle| *middle < low)).copied().unwrap_or_default();
        let upto = self.below.get(self.middles.partition_point(|middle| *middle <= high)).copied().unwrap_or(all);
        let over = [all[0] - upto[0], all[1] - upto[1], all[2] - upto[2]];
        let distance = |[count, sum, squares]: [f64; 3], end: f64| (squares - 2.0 * end * sum + end * end * count).max(0.0);
        (under[0] + over[0], distance(under, low) + distance(over, high))
    }

    /// The ends of the range with at most `outside` values below it, and above it. Zeros count as inside.
    fn between(&self, outside: f64) -> (f64, f64) {
        let low = self.below.partition_point(|sum| sum[0] <= outside).saturating_sub(1);
        let high = self.below.partition_point(|sum| sum[0] < self.count - outside);
        let at = |place: usize| self.middles.get(place).copied().unwrap_or(0.0);
        (at(low), at(high.saturating_sub(1)))
    }
}
