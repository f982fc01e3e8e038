//! Warm-up: runs the model at the sizes that calls will have, so that memory is allocated, weights are in the caches, and the
//! batcher knows what a batch costs before the first call.

use crate::batch::{CallCost, Config};
use crate::model::{BatchResult, Model};
use lapwing_engine::clock::Stamp;
use lapwing_onnx::EngineError;
use lapwing_onnx::tensor::Tensor;

/// Tokens of a synthetic sequence, if the model takes as many.
const LENGTH: usize = 128;
/// Lengths of open axes that a model without a plan may take, where it takes no other: sides of pictures, samples of sound.
const LENGTHS: [usize; 6] = [2, 8, 64, 224, 512, 16_000];
/// Sizes that may take longer than this are skipped.
const LONGEST_NS: u64 = 250_000_000;
/// How often each size is run.
const RUNS: usize = 3;

/// Runs synthetic calls one by one, first of one row and then of more, until the largest batch or the time limit; reports the cost of
/// each size to `observe`, by its quickest run but the first. Returns the number of runs.
pub(crate) fn up(
    model: &Model,
    config: &Config,
    mut run_one: impl FnMut(&[Tensor]) -> Result<BatchResult, EngineError>,
    observe: impl Fn(CallCost, u64),
) -> Result<usize, EngineError> {
    let mut runs = 0;
    let mut measure = |rows: usize, length: usize| {
        let call = model.synthetic_call(rows, length);
        // a model whose batch is fixed has rows of its own
        let rows = call.first().and_then(|tensor| tensor.shape.first()).copied().unwrap_or(rows);
        let (mut quickest, mut last) = (u64::MAX, 0);
        for run in 0..RUNS {
            let began = Stamp::now();
            let ran = run_one(&call)?;
            runs += 1;
            // the first run of a size allocates its memory
            if run > 0 {
                quickest = quickest.min(ran.forward_ns);
            }
            last = began.elapsed();
        }
        // a run whose thread was preempted says nothing of the model, and one among the first few would hide all larger sizes
        let tokens = if model.has_tokens() { rows * length } else { 0 };
        (1..RUNS).for_each(|_| observe(CallCost { rows, tokens }, quickest));
        Ok(last)
    };
    let length = LENGTH.min(model.longest().unwrap_or(LENGTH)).min(config.max_tokens.max(1));
    let mut sizes = vec![(1, 1), (1, length.div_ceil(8)), (1, length)];
    sizes.dedup();
    if model.plan().is_none() {
        if !model.has_only_rows() {
            return any_length(&sizes, &mut measure).map(|()| runs);
        }
        // lengths make no difference
        sizes.truncate(1);
    }
    let mut rows = 1;
    loop {
        let mut fastest = u64::MAX;
        for (rows, length) in sizes.drain(..) {
            match measure(rows, length) {
                // nothing but a plan shows that a call may have several rows
                Err(error) if rows == 1 || model.plan().is_some() || matches!(error, EngineError::Device { .. }) => {
                    return Err(error);
                }
                Err(_) => return Ok(runs),
                Ok(last) => fastest = last,
            }
        }
        rows *= 4;
        let is_small =
            model.has_open_batch() && rows <= config.max_rows && (!model.has_tokens() || rows * length <= config.max_tokens);
        if !is_small || fastest.saturating_mul(4 * RUNS as u64) > LONGEST_NS {
            return Ok(runs);
        }
        sizes.push((rows, length));
    }
}

/// Runs a model of which nothing is known at the sizes that it takes, and else at the first length that it takes.
fn any_length(
    sizes: &[(usize, usize)],
    measure: &mut impl FnMut(usize, usize) -> Result<u64, EngineError>,
) -> Result<(), EngineError> {
    let mut outcomes = Vec::new();
    for (rows, length) in sizes {
        match measure(*rows, *length) {
            Err(error @ EngineError::Device { .. }) => return Err(error),
            outcome => outcomes.push(outcome),
        }
    }
    if outcomes.iter().any(Result::is_ok) || LENGTHS.into_iter().any(|length| measure(1, length).is_ok()) {
        return Ok(());
    }
    outcomes.pop().map_or(Ok(()), |outcome| outcome.map(drop))
}
