//! A native histogram as Prometheus' protobuf has it: spans of buckets, and the differences between their counts.

use crate::ExponentialBuckets;

/// A histogram that would take more buckets gets wider ones.
pub const MAX_BUCKETS: usize = 160;
/// Up to this many empty buckets between two others are written as buckets; further ones begin a new span, as in Go's client.
const MAX_GAP: i32 = 2;

/// The buckets of a histogram, without its sum and count.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeHistogram {
    /// Each bucket ends at 2^(2^-schema) times where it begins.
    pub schema: i32,
    /// Values up to this are in no bucket, but counted as zero.
    pub zero_threshold: f64,
    /// How many these are.
    pub zero_count: u64,
    /// The distance from the span before (from bucket 0 for the first), and the number of buckets.
    pub spans: Vec<(i32, u32)>,
    /// The count of each bucket less that of the bucket before.
    pub deltas: Vec<i64>,
}

impl NativeHistogram {
    /// Widens the buckets until there are at most [`MAX_BUCKETS`].
    #[must_use]
    pub fn of(mut buckets: ExponentialBuckets) -> Self {
        while length(&buckets.buckets) > MAX_BUCKETS && buckets.widen() {}
        let ExponentialBuckets { schema, zero_threshold, zero_count, buckets } = buckets;
        let (mut spans, mut deltas): (Vec<(i32, u32)>, Vec<i64>) = (Vec::new(), Vec::new());
        let (mut next, mut before) = (0, 0);
        let mut push = |count: i64| deltas.push(count - std::mem::replace(&mut before, count));
        for (index, count) in buckets {
            let gap = index - next;
            match spans.last_mut() {
                Some((_, length)) if gap <= MAX_GAP => {
                    *length += gap.unsigned_abs() + 1;
                    (0..gap).for_each(|_| push(0));
                }
                _ => spans.push((gap, 1)),
            }
            push(i64::try_from(count).unwrap_or(i64::MAX));
            next = index + 1;
        }
        Self { schema: schema.into(), zero_threshold, zero_count, spans, deltas }
    }

    /// The same as buckets with their indices, without the empty ones.
    #[must_use]
    pub fn exponential(&self) -> ExponentialBuckets {
        let (mut buckets, mut index, mut count, mut deltas) = (Vec::new(), 0, 0_i64, self.deltas.iter());
        for (offset, length) in &self.spans {
            index += offset;
            for delta in deltas.by_ref().take(*length as usize) {
                count += delta;
                buckets.push((index, u64::try_from(count).unwrap_or(0)));
                index += 1;
            }
        }
        buckets.retain(|(_, count)| *count > 0);
        let schema = i8::try_from(self.schema).unwrap_or(0);
        ExponentialBuckets { schema, zero_threshold: self.zero_threshold, zero_count: self.zero_count, buckets }
    }
}

/// How many buckets are written, with the empty ones between others.
fn length(buckets: &[(i32, u64)]) -> usize {
    let gaps = buckets.windows(2).map(|pair| pair[1].0 - pair[0].0 - 1).filter(|gap| *gap <= MAX_GAP);
    buckets.len() + gaps.map(|gap| gap.unsigned_abs() as usize).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(schema: i8, buckets: &[(i32, u64)]) -> NativeHistogram {
        NativeHistogram::of(ExponentialBuckets { schema, zero_threshold: 5e-7, zero_count: 3, buckets: buckets.to_vec() })
    }

    #[test]
    fn gaps_begin_spans_and_small_ones_do_not() {
        let native = of(5, &[(-3, 2), (-2, 5), (1, 1), (5, 1)]);
        assert_eq!(native.spans, [(-3, 5), (3, 1)]);
        assert_eq!(native.deltas, [2, 3, -5, 0, 1, 0]);
        assert_eq!((native.schema, native.zero_count), (5, 3));
        assert_eq!((of(5, &[]).spans.len(), of(5, &[]).deltas.len()), (0, 0));
    }

    proptest! {
        #[test]
        fn a_reader_finds_what_was_written(gaps in proptest::collection::vec((0..9_i32, 1..1_000_u64), 1..400), first in -900..0_i32) {
            let mut index = first;
            let mut buckets = Vec::new();
            for (gap, count) in gaps {
                index += gap + 1;
                buckets.push((index, count));
            }
            let native = of(8, &buckets);
            prop_assert!(native.deltas.len() <= MAX_BUCKETS);
            let mut wanted = ExponentialBuckets { schema: 8, zero_threshold: 5e-7, zero_count: 3, buckets };
            while i32::from(wanted.schema) > native.schema {
                wanted.widen();
            }
            prop_assert_eq!(native.exponential(), wanted);
        }
    }
}
