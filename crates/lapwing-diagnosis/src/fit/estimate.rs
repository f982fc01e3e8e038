//! The fit of a series: its parameters with intervals by the jackknife over blocks of time, and when it is refused.

use super::block::Block;
use super::cells::{WideCells, total};
use super::fitted::{FittedValue, FittedWaiting, WindowFit, jackknife};
use super::model::Model;
use super::moments::Moments;
use super::part::Pooled;
use super::pending::FOLD;
use super::refusal::FitRefusal;
use super::solve::{self, Candidate};

/// The least samples of a fit.
pub(crate) const LEAST_SAMPLES: u64 = 512;
/// The least blocks of time, to see how much they differ.
const LEAST_BLOCKS: usize = 4;
/// The least standard deviation of the work, over its mean.
const LEAST_VARIATION: f64 = 0.05;
/// The least standard deviation of the number in flight, where requests are not alone.
const LEAST_CONCURRENCY: f64 = 0.3;
/// The largest share of rejected samples.
const MOST_OUTLIERS: f64 = 0.15;
/// The largest half of the mean service time's interval, over that time.
const MOST_IMPRECISE: f64 = 0.4;
/// The largest share of the variance that may be left over, where windows vary by more than [`PLAIN_NOISE`] about the model.
const MOST_UNEXPLAINED: f64 = 0.75;
/// A standard deviation of this share of the mean needs no explanation.
const PLAIN_NOISE: f64 = 0.2;
/// The shape of the wait is known to about this share; it widens the interval of `per_ahead`.
const SHAPE_ERROR: f64 = 0.05;
/// Numbers of slots whose deviance is at most this much larger are held possible: the 95 % quantile of χ² with one degree of freedom.
const POSSIBLE: f64 = 3.84;

/// Fits a series.
///
/// # Errors
///
/// What the figures lack.
pub(crate) fn fit(blocks: &[Block]) -> Result<WindowFit, FitRefusal> {
    let samples: u64 = blocks.iter().map(|block| block.samples).sum();
    if samples < LEAST_SAMPLES {
        return Err(FitRefusal::TooFewSamples { samples, needed: LEAST_SAMPLES });
    }
    if blocks.len() < LEAST_BLOCKS {
        return Err(FitRefusal::TooFewSamples { samples, needed: LEAST_SAMPLES.max(samples + FOLD as u64) });
    }
    let rejected: u64 = blocks.iter().map(|block| block.rejected).sum();
    let outlier_share = rejected as f64 / samples as f64;
    if outlier_share > MOST_OUTLIERS {
        return Err(FitRefusal::TooManyOutliers { share: outlier_share });
    }
    let pooled = Pooled::of(blocks.iter());
    let cells = &pooled.cells;
    let total = total(cells.moments());
    let variation = work_variation(cells, &total);
    if variation < LEAST_VARIATION {
        return Err(FitRefusal::WorkDoesNotVary { variation });
    }
    let concurrency = concurrency_deviation(cells, &total);
    if total.in_flight > 1.1 && concurrency < LEAST_CONCURRENCY {
        return Err(FitRefusal::ConcurrencyDoesNotVary { in_flight: total.in_flight });
    }
    let candidates = solve::choose(cells.moments(), &total);
    let Some(Candidate { model, deviance }) = candidates.first().copied() else {
        return Err(FitRefusal::Unexplained { share: 1.0 });
    };
    let unexplained_share = unexplained(cells, &total, &model);
    let left = left_over(cells, &model) / (total.weight * total.window * total.window).max(1.0);
    if unexplained_share > MOST_UNEXPLAINED && left.sqrt() > PLAIN_NOISE {
        return Err(FitRefusal::Unexplained { share: unexplained_share });
    }
    let mut without = Vec::with_capacity(blocks.len());
    let mut shares = Vec::with_capacity(blocks.len());
    for (at, block) in blocks.iter().enumerate() {
        let others = blocks.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, block)| block);
        let Some(part) = Pooled::of(others).fit(&model) else { continue };
        without.push(part);
        shares.push(block.samples as f64);
    }
    let interval = |of: &dyn Fn(&Model) -> f64| {
        let others: Vec<f64> = without.iter().map(|part| of(&part.model)).collect();
        FittedValue::new(of(&model), jackknife(of(&model), &others, &shares))
    };
    let fixed_ns = interval(&|model| model.fixed);
    let per_unit_ns = interval(&|model| model.per_unit);
    let service_ns = interval(&|model| model.service(total.work)).not_negative();
    if service_ns.half_width() > MOST_IMPRECISE * service_ns.value {
        return Err(FitRefusal::Imprecise { half_width: service_ns.half_width() / service_ns.value.max(1.0) });
    }
    if per_unit_ns.half_width() * variation * total.work > 0.3 * total.window {
        return Err(FitRefusal::WorkDoesNotVary { variation });
    }
    let waiting = if model.slots == 0 {
        FittedWaiting::Unseen { most_in_flight: cells.moments().iter().map(|moments| moments.in_flight).fold(0.0, f64::max) }
    } else {
        waiting(interval(&|model| model.per_ahead), &model, deviance, &candidates)
    };
    let window_mean_ns = blocks.iter().map(|block| block.window_sum).sum::<f64>() / samples as f64;
    Ok(WindowFit {
        fixed_ns: fixed_ns.not_negative(),
        per_unit_ns,
        service_ns,
        waiting,
        unexplained_share,
        outlier_share,
        samples,
        window_mean_ns,
        model,
        all: pooled.with(model),
        blocks: blocks.to_vec(),
        without,
        shares,
    })
}

/// How requests wait: the slots that fit best, and those that fit hardly worse.
fn waiting(per_ahead: FittedValue, model: &Model, deviance: f64, candidates: &[Candidate]) -> FittedWaiting {
    let half_width = per_ahead.half_width().hypot(SHAPE_ERROR * per_ahead.value);
    let (mut least, mut most) = (model.slots, model.slots);
    for other in candidates.iter().filter(|other| other.model.slots > 0 && other.deviance <= deviance + POSSIBLE) {
        (least, most) = (least.min(other.model.slots), most.max(other.model.slots));
    }
    FittedWaiting::Fitted {
        per_ahead_ns: FittedValue::new(per_ahead.value, half_width).not_negative(),
        slots: model.slots,
        slots_interval: [least, most],
    }
}

/// The standard deviation of the work over its mean, without classes that hardly anybody asks for.
fn work_variation(cells: &WideCells, total: &Moments) -> f64 {
    let mut classes = [Moments::default(); 65];
    for (class, moments) in cells.by_class() {
        classes[usize::from(class).min(64)].merge(moments);
    }
    let mut common = Moments::default();
    classes.iter().filter(|moments| moments.weight >= 0.01 * total.weight).for_each(|moments| common.merge(moments));
    (common.work_work / common.weight.max(1.0)).sqrt() / common.work.max(1e-9)
}

fn concurrency_deviation(cells: &WideCells, total: &Moments) -> f64 {
    let squares: f64 = cells.moments().iter().map(|moments| moments.weight * (moments.in_flight - total.in_flight).powi(2)).sum();
    (squares / total.weight.max(1.0)).sqrt()
}

fn left_over(cells: &WideCells, model: &Model) -> f64 {
    cells.moments().iter().map(|moments| solve::squares(moments, model)).sum()
}

fn unexplained(cells: &WideCells, total: &Moments, model: &Model) -> f64 {
    (left_over(cells, model) / total.window_window.max(1.0)).clamp(0.0, 1.0)
}
