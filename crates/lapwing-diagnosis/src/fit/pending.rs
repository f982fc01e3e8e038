//! Samples that wait to be folded into cells, and how they are judged before.

use super::block::Block;
use super::cells::{CellKey, Cells, WideCells, total};
use super::model::Model;
use super::moments::Moments;
use super::solve;

/// How many samples wait at most.
pub(crate) const FOLD: usize = 128;
/// Beyond this many standard deviations a sample counts less (Huber, 1964).
const HUBER: f64 = 3.0;
/// Beyond this many it is rejected: such an outlier says nothing of the server's usual work.
const REJECT: f64 = 8.0;
/// A cost class or a level of concurrency is judged by the model only after this many samples.
const FAMILIAR: f64 = 8.0;
/// Until then it may be this many times further off.
const UNFAMILIAR: f64 = 4.0;

/// One request, until it is folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) work: f32,
    pub(crate) in_flight: u32,
    pub(crate) window_ns: f32,
    /// Microseconds after the first arrival of the fold.
    pub(crate) after_us: u32,
}

impl Sample {
    fn moments(self, weight: f64) -> Moments {
        Moments::of(weight, f64::from(self.in_flight), f64::from(self.work), f64::from(self.window_ns))
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the work was an integer")]
    fn key(self) -> CellKey {
        CellKey::of(self.in_flight, self.work as u64)
    }
}

/// Fits samples by iterating: each step weighs them by how far off the last one left them.
pub(crate) fn first_model(samples: &[Sample]) -> Option<Model> {
    // least absolute deviations first: half of the samples may be anything
    let plain: Vec<Moments> = samples.iter().map(|sample| sample.moments(1.0)).collect();
    let mut total = total(&plain);
    let mut windows: Vec<f64> = plain.iter().map(|moments| moments.window).collect();
    windows.sort_by(f64::total_cmp);
    total.window = *windows.get(windows.len() / 2)?;
    let mut slots = vec![0];
    slots.extend(
        solve::SLOTS
            .into_iter()
            .take_while(|slots| plain.iter().filter(|moments| moments.in_flight > f64::from(*slots)).count() >= 8),
    );
    let mut best: Option<(f64, Model)> = None;
    for slots in slots {
        let mut model = solve::start(&total, slots);
        let mut weighted = plain.clone();
        let mut loss = f64::INFINITY;
        for step in 0..8 {
            let mut ratios: Vec<f64> = weighted
                .iter()
                .map(|moments| {
                    let off = moments.window - model.service(moments.work) - model.wait(moments.in_flight);
                    off.abs() / model.variance(moments.work, moments.in_flight).sqrt()
                })
                .collect();
            let all = ratios.clone();
            let middle = ratios.len() / 2;
            let (_, median, _) = ratios.select_nth_unstable_by(middle, f64::total_cmp);
            let scale = (*median * 1.4826).max(1e-9);
            for (moments, ratio) in weighted.iter_mut().zip(&all) {
                let ratio = ratio / scale;
                moments.weight = if step < 4 { 1.0 / ratio.max(0.3) } else { weigh(ratio) };
            }
            let Some(next) = solve::refine(&weighted, &total, &model) else { break };
            model = next;
            loss = plain
                .iter()
                .map(|moments| {
                    let variance = model.variance(moments.work, moments.in_flight);
                    let off = moments.window - model.service(moments.work) - model.wait(moments.in_flight);
                    0.5 * variance.ln() + (off.abs() / variance.sqrt()).min(REJECT)
                })
                .sum();
        }
        let loss = if slots == 0 { loss - 2.0 } else { loss };
        if loss.is_finite() && best.as_ref().is_none_or(|(least, _)| loss < *least) {
            best = Some((loss, model));
        }
    }
    best.map(|(_, model)| model)
}

/// The weight of a sample that is `ratio` standard deviations off.
fn weigh(ratio: f64) -> f64 {
    if ratio <= HUBER {
        1.0
    } else if ratio <= REJECT {
        HUBER / ratio
    } else {
        0.0
    }
}

/// Judges samples by a model and adds them up; `known` are the cells that the model was fitted to.
pub(crate) fn fold(samples: &[Sample], first_at: u64, model: &Model, known: Option<&WideCells>) -> Block {
    let mut cells = WideCells::default();
    let mut block = Block { samples: samples.len() as u64, first_at, last_at: first_at, ..Block::default() };
    // those that the model was made of are familiar to it
    let (mut most, mut largest) = if known.is_some() { (0.0_f64, 0_u8) } else { (f64::INFINITY, u8::MAX) };
    for (class, moments) in known.iter().flat_map(|known| known.by_class()) {
        if moments.weight >= FAMILIAR {
            most = most.max(moments.in_flight);
            largest = largest.max(class);
        }
    }
    let judged: Vec<Judged> = samples.iter().map(|sample| Judged::of(sample, model)).collect();
    let scales = [false, true].map(|waits| scale(&judged, waits));
    for (sample, judged) in samples.iter().zip(&judged) {
        let key = sample.key();
        let in_flight = f64::from(sample.in_flight);
        let familiar = in_flight <= most * 1.25 + 1.0 && key.class() <= largest;
        let tolerance = if familiar { 1.0 } else { UNFAMILIAR };
        let weight = weigh(judged.off / (scales[usize::from(judged.waits)] * tolerance));
        if weight > 0.0 {
            cells.add(key, &sample.moments(weight));
        } else {
            block.rejected += 1;
        }
        let window = f64::from(sample.window_ns);
        if !judged.waits {
            block.ratios.record(window / model.service(f64::from(sample.work)));
        }
        block.window_sum += window;
        block.last_at = block.last_at.max(first_at.saturating_add(u64::from(sample.after_us) * 1_000));
    }
    block.cells = Cells::pack(&cells);
    block.gaps = gaps(samples);
    block
}

/// How far a sample is off.
#[derive(Clone, Copy, Debug)]
struct Judged {
    waits: bool,
    /// In standard deviations of the model.
    off: f64,
}

impl Judged {
    fn of(sample: &Sample, model: &Model) -> Self {
        let (work, in_flight) = (f64::from(sample.work), f64::from(sample.in_flight));
        let off = f64::from(sample.window_ns) - model.service(work) - model.wait(in_flight);
        Self { waits: model.departures(in_flight) > 0.0, off: off.abs() / model.variance(work, in_flight).sqrt() }
    }
}

/// The standard deviation of those that wait, or of those that do not, as their median says it, in standard deviations of the
/// model. Outliers that have widened the model's own variance do not let further ones pass.
fn scale(judged: &[Judged], waits: bool) -> f64 {
    let mut offs: Vec<f64> = judged.iter().filter(|judged| judged.waits == waits).map(|judged| judged.off).collect();
    if offs.len() < 16 {
        return 1.0;
    }
    let middle = offs.len() / 2;
    let (_, median, _) = offs.select_nth_unstable_by(middle, f64::total_cmp);
    (*median * 1.4826).clamp(0.1, 1.5)
}

/// The gaps between the arrivals: number, sum and sum of squares, in seconds.
fn gaps(samples: &[Sample]) -> [f64; 3] {
    let mut arrivals: Vec<u32> = samples.iter().map(|sample| sample.after_us).collect();
    arrivals.sort_unstable();
    let mut sums = [0.0; 3];
    for pair in arrivals.windows(2) {
        let gap = f64::from(pair[1] - pair[0]) / 1e6;
        sums = [sums[0] + 1.0, sums[1] + gap, sums[2] + gap * gap];
    }
    sums
}
