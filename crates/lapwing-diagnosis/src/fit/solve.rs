//! Weighted least squares over cells, and the choice of the number of slots by likelihood.

use super::model::{Model, wait_shape};
use super::moments::Moments;

/// The numbers of slots that are tried.
pub(crate) const SLOTS: [u32; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64];

/// How many times more the samples of a busy period vary together than if they were independent. A likelihood is divided by it.
const DEPENDENCE: f64 = 3.0;

/// A model and how well it fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) model: Model,
    /// Twice the negative logarithm of the likelihood, corrected for dependence, up to a constant.
    pub(crate) deviance: f64,
}

/// Normal equations of four unknowns.
#[derive(Clone, Copy, Debug, Default)]
struct Normal {
    matrix: [[f64; 4]; 4],
    right: [f64; 4],
}

impl Normal {
    fn add(&mut self, x: [f64; 4], moments: &Moments, precision: f64) {
        let weight = moments.weight * precision;
        for row in 0..4 {
            for column in 0..4 {
                self.matrix[row][column] += weight * x[row] * x[column];
            }
            self.right[row] += weight * x[row] * moments.window;
        }
        self.matrix[1][1] += precision * moments.work_work;
        self.right[1] += precision * moments.work_window;
    }

    /// Expects the unknown `at` to be `value`, give or take the square root of `variance`.
    fn expect(&mut self, at: usize, value: f64, variance: f64) {
        self.matrix[at][at] += 1.0 / variance;
        self.right[at] += value / variance;
    }

    /// Solves by Cholesky's decomposition of the scaled matrix; an unknown that nothing determines is zero.
    fn solve(&self) -> Option<[f64; 4]> {
        let scale = std::array::from_fn::<f64, 4, _>(|at| {
            let diagonal = self.matrix[at][at];
            if diagonal > 0.0 && diagonal.is_finite() { diagonal.sqrt().recip() } else { 0.0 }
        });
        let mut lower = [[0.0; 4]; 4];
        for row in 0..4 {
            for column in 0..=row {
                let mut value = self.matrix[row][column] * scale[row] * scale[column];
                if row == column {
                    value += if scale[row] > 0.0 { 1e-10 } else { 1.0 };
                }
                value -= lower[row].iter().zip(&lower[column]).take(column).map(|(a, b)| a * b).sum::<f64>();
                lower[row][column] = if row == column {
                    if value <= 0.0 || value.is_nan() {
                        return None;
                    }
                    value.sqrt()
                } else {
                    value / lower[column][column]
                };
            }
        }
        let mut solution = [0.0; 4];
        for row in 0..4 {
            let known: f64 = (0..row).map(|at| lower[row][at] * solution[at]).sum();
            solution[row] = (self.right[row] * scale[row] - known) / lower[row][row];
        }
        for row in (0..4).rev() {
            let known: f64 = (row + 1..4).map(|at| lower[at][row] * solution[at]).sum();
            solution[row] = (solution[row] - known) / lower[row][row];
        }
        for (value, scale) in solution.iter_mut().zip(scale) {
            *value *= scale;
        }
        solution.iter().all(|value| value.is_finite()).then_some(solution)
    }
}

/// The sum of squared deviations of a cell's windows from a model.
pub(crate) fn squares(moments: &Moments, model: &Model) -> f64 {
    let off = moments.window - model.service(moments.work) - model.wait(moments.in_flight);
    let slope = model.per_unit;
    let within = moments.window_window - 2.0 * slope * moments.work_window + slope * slope * moments.work_work;
    moments.weight * off * off + within.max(0.0)
}

/// What a model starts from before anything is fitted: a constant.
pub(crate) fn start(total: &Moments, slots: u32) -> Model {
    let fixed = total.window.max(1.0);
    let per_ahead = if slots == 0 { 0.0 } else { fixed / f64::from(slots) };
    let (service_variation, noise, wait_noise) = (0.5, 0.05, 0.5);
    Model { fixed, per_unit: 0.0, per_ahead, first: 0.0, slots, service_variation, noise, wait_noise }
}

/// One step of iteratively reweighted least squares: solves with the variances of `model`, then estimates them anew.
pub(crate) fn refine(cells: &[Moments], total: &Moments, model: &Model) -> Option<Model> {
    let mut normal = Normal::default();
    let waits = model.slots > 0;
    for moments in cells {
        let departures = model.departures(moments.in_flight);
        let waiting = (departures - 1.0).clamp(0.0, 1.0);
        let shape = if departures > 0.0 { wait_shape(departures, model.slots, model.service_variation) } else { 0.0 };
        let x = [1.0, moments.work, shape, waiting];
        normal.add(x, moments, model.variance(moments.work, moments.in_flight).recip());
    }
    if waits {
        let expected = model.service(total.work) / f64::from(model.slots);
        normal.expect(2, expected, (expected * 0.6).powi(2));
        let around = model.per_ahead.max(expected * 0.05);
        normal.expect(3, -0.06 * around, (0.12 * around).powi(2));
    }
    let [fixed, per_unit, per_ahead, first] = normal.solve()?;
    let mut next = Model { fixed, per_unit, per_ahead, first, ..*model };
    if waits && per_ahead <= 0.0 {
        return None;
    }
    estimate_variances(cells, total, &mut next);
    Some(next)
}

/// Estimates the variances from what a model leaves over.
fn estimate_variances(cells: &[Moments], total: &Moments, model: &mut Model) {
    let (mut alone, mut alone_scale) = (1e-12, 1e-6);
    let (mut service, mut service_squares) = (0.0, 0.0);
    for moments in cells {
        let mean = model.service(moments.work);
        let scale = moments.weight * mean * mean + model.per_unit * model.per_unit * moments.work_work;
        service += moments.weight * mean;
        service_squares += scale;
        if model.departures(moments.in_flight) <= 0.0 {
            alone += squares(moments, model);
            alone_scale += scale;
        }
    }
    // where nearly all requests wait, the noise of service is hard to distinguish from that of waiting
    let alone_share = (alone_scale / service_squares.max(1.0)).min(1.0);
    let all: f64 = cells.iter().map(|moments| squares(moments, model)).sum();
    let measured = alone / alone_scale;
    let bound = all / service_squares.max(1.0);
    model.noise = if alone_share < 0.01 { bound.min(0.05) } else { measured }.clamp(1e-6, 25.0);
    let (mut waiting, mut waiting_scale) = (0.0, 1e-6);
    for moments in cells {
        let departures = model.departures(moments.in_flight);
        if departures > 0.0 {
            let mean = model.service(moments.work);
            waiting += squares(moments, model) - moments.weight * model.noise * mean * mean;
            waiting_scale += moments.weight * departures * model.per_ahead * model.per_ahead;
        }
    }
    model.wait_noise = (waiting / waiting_scale).clamp(0.02, 25.0);
    let mean = service / total.weight.max(1e-9);
    let mean_square = service_squares * (1.0 + model.noise) / total.weight.max(1e-9);
    model.service_variation = (mean_square / (mean * mean).max(1.0) - 1.0).clamp(0.0, 4.0);
}

/// Fits one number of slots.
pub(crate) fn fit_slots(cells: &[Moments], total: &Moments, start: Model, steps: usize) -> Option<Candidate> {
    let mut model = start;
    for _ in 0..steps {
        model = refine(cells, total, &model)?;
    }
    let deviance: f64 = cells
        .iter()
        .map(|moments| {
            let variance = model.variance(moments.work, moments.in_flight);
            moments.weight * variance.ln() + squares(moments, &model) / variance
        })
        .sum();
    (deviance.is_finite()).then_some(Candidate { model, deviance: deviance / DEPENDENCE })
}

/// Fits all numbers of slots that the cells can distinguish, none (no waiting) included, the best first.
pub(crate) fn choose(cells: &[Moments], total: &Moments) -> Vec<Candidate> {
    // without waiting two parameters less are fitted, so waiting must earn them
    const EARNED: f64 = 6.0;
    let mut found = Vec::new();
    if let Some(candidate) = fit_slots(cells, total, start(total, 0), 4) {
        found.push(Candidate { deviance: candidate.deviance - EARNED, ..candidate });
    }
    for slots in SLOTS {
        let beyond: f64 =
            cells.iter().filter(|moments| moments.in_flight > f64::from(slots) + 0.5).map(|moments| moments.weight).sum();
        if beyond < (total.weight * 0.005).max(8.0) {
            break;
        }
        found.extend(fit_slots(cells, total, start(total, slots), 6));
    }
    found.sort_by(|a, b| a.deviance.total_cmp(&b.deviance));
    found
}
