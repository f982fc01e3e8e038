//! What each stage takes of the tail, and of the body of the distribution.

use super::attribution::{Attribution, by_block, draw, interval, share};
use super::part::{Part, PartSet, Parts};
use super::reference::{Reference, mean};
use super::report::TailShare;
use super::samples::{Sample, Samples};
use lapwing_ledger::Stage;

/// The least number of exchanges that make a tail.
const LEAST: usize = 5;

/// The least share of a difference in what moved between stages, for the difference to be divided.
const ROUNDING: f64 = 1e-4;

/// The share of each stage in the median, in the tail and in the time in question; of stages that take any time.
///
/// Where nothing is in question (`None`), the time in question is what the tail takes beyond the body, and a stage that takes less
/// there has a negative share.
pub(crate) fn shares(samples: &Samples<'_>, reference: &Reference, found: Option<&Attribution<'_>>) -> Vec<TailShare> {
    let middle = mean(samples.between(0.4, 0.6).iter());
    let tail = tail(samples);
    let slow = mean(tail.iter());
    let beyond: Vec<Parts>;
    let (parts, draws) = if let Some(found) = found {
        (found.parts, &found.draws)
    } else {
        let body = reference.body();
        let each = tail.iter().map(|sample| {
            let mut parts = sample.seen.parts();
            parts.iter_mut().zip(body).for_each(|(ns, usual)| *ns -= usual);
            (*sample, parts)
        });
        beyond = draw(&by_block(each, samples.blocks()));
        let mut parts = slow;
        parts.iter_mut().zip(body).for_each(|(ns, usual)| *ns -= usual);
        (parts, &beyond)
    };
    let of_stage = |stage: Stage| Part::ALL.into_iter().filter(move |part| part.stage() == stage);
    let signed = |parts: &Parts, stage| {
        let whole: f64 = parts.iter().sum();
        let own: f64 = of_stage(stage).map(|part| parts[part as usize]).sum();
        // where the tail takes as long as the body, what is left of the difference is rounding
        let moved: f64 = parts.iter().map(|ns| ns.abs()).sum();
        if whole > ROUNDING * moved { own / whole } else { 0.0 }
    };
    let shares = Stage::ALL.into_iter().map(|stage| {
        let set = of_stage(stage).fold(PartSet::default(), |set, part| set.with(PartSet::of(&[part])));
        TailShare {
            stage: stage.name().to_owned(),
            body_ns: set.sum(&middle),
            tail_ns: set.sum(&slow),
            share_of_p50: share(&middle, set),
            share_of_p99: share(&slow, set),
            share_of_excess: signed(&parts, stage),
            excess_interval: interval(draws, |parts| signed(parts, stage)),
        }
    });
    shares.filter(|of_stage| of_stage.body_ns > 0.0 || of_stage.tail_ns > 0.0 || of_stage.share_of_excess != 0.0).collect()
}

/// The slowest hundredth, and at least five.
fn tail<'a, 'b>(samples: &'b Samples<'a>) -> &'b [Sample<'a>] {
    let hundredth = samples.between(0.99, 1.0);
    let few = samples.last(LEAST);
    if hundredth.len() > few.len() { hundredth } else { few }
}
