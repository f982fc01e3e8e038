//! What is inferred of a server that reports nothing, in words: for `lapwing stats`, `top`, `diagnose`, and the demo.

use super::units::duration;
use lapwing_diagnosis::{FittedStages, FittedValue};

/// `forward 12.0 ms (11.5 ms to 12.5 ms) in the mean, queue …`.
pub(crate) fn inferred_words(fitted: &FittedStages) -> String {
    let with = |FittedValue { value, low, high }: FittedValue| {
        let [value, low, high] = [value, low, high].map(duration);
        format!("{value} ({low} to {high})")
    };
    let forward = with(fitted.forward.mean_ns);
    let queue = fitted.queue.map_or_else(|| "no wait seen".to_owned(), |queue| with(queue.mean_ns));
    format!("forward {forward} in the mean, queue {queue}")
}
