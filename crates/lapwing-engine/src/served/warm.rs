//! Warm-up: the model is run at sizes that calls will have, so that memory is there, caches know the weights, and the batcher
//! knows what a batch costs, before anybody waits for an answer.

use crate::EngineError;
use crate::batch::{Config, Cost};
use crate::clock::Stamp;
use crate::model::{Model, Ran};
use crate::tensor::Tensor;

/// Tokens of a sequence that is made up, where the model takes as many.
const LENGTH: usize = 128;
/// No size is tried that may take longer than this.
const LONGEST_NS: u64 = 250_000_000;
/// How often each size is run.
const RUNS: usize = 3;

/// Has calls run one by one, of one row and then of more and more, until the largest batch or the time limit; tells `observe` what
/// each run cost. Returns how many runs there were.
pub(super) fn up(
    model: &Model,
    config: &Config,
    mut run_one: impl FnMut(&[Tensor]) -> Result<Ran, EngineError>,
    observe: impl Fn(Cost, u64),
) -> Result<usize, EngineError> {
    let mut runs = 0;
    let length = LENGTH.min(model.longest().unwrap_or(LENGTH)).min(config.max_tokens.max(1));
    let mut sizes = vec![(1, 1), (1, length.div_ceil(8)), (1, length)];
    sizes.dedup();
    let mut rows = 1;
    loop {
        let mut fastest = u64::MAX;
        for (rows, length) in sizes.drain(..) {
            let call = model.synthetic_call(rows, length);
            for run in 0..RUNS {
                let began = Stamp::now();
                let ran = run_one(&call)?;
                runs += 1;
                // the first one of a size makes its memory
                if run > 0 {
                    let tokens = if model.has_tokens() { rows * length } else { 0 };
                    observe(Cost { rows, tokens }, ran.forward_ns);
                }
                fastest = began.elapsed();
            }
        }
        rows *= 4;
        let is_small = rows <= config.max_rows && (!model.has_tokens() || rows * length <= config.max_tokens);
        if !model.batches() || !is_small || fastest.saturating_mul(4 * RUNS as u64) > LONGEST_NS {
            return Ok(runs);
        }
        sizes.push((rows, length));
    }
}
