//! Which of many routes changed: e-BH, which bounds the share of false discoveries among those it names.

/// The largest expected share of routes that are named although nothing changed.
const FALSE_DISCOVERY_RATE: f64 = 0.05;

/// What can be said of the routes that are named.
pub const CHANGED_ROUTES_CLAIM: &str = "at most 5 % of those named are expected to be false";

/// The indices of the routes that changed, strongest first, from the natural logarithm of each route's e-value
/// ([`log_e_value`](super::LatencyReport::log_e_value)); `None` counts as no evidence.
///
/// Of R routes, the K with the largest e-values are named, for the largest K such that the K-th is at least R / (0.05 K).
/// Wang and Ramdas, JRSSB 2022; valid whatever the dependence between routes. Prefer it to reading many reports at 95 % each.
#[must_use]
pub fn changed_routes(log_e_values: &[Option<f64>]) -> Vec<usize> {
    let known = log_e_values.iter().enumerate().filter_map(|(route, log_e)| Some((route, (*log_e)?)));
    let mut strongest: Vec<_> = known.filter(|(_, log_e)| !log_e.is_nan()).collect();
    strongest.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let routes = log_e_values.len() as f64;
    let is_named = |named: usize| strongest[named - 1].1 >= (routes / (named as f64 * FALSE_DISCOVERY_RATE)).ln();
    let named = (1..=strongest.len()).rev().find(|named| is_named(*named)).unwrap_or(0);
    strongest[..named].iter().map(|(route, _)| *route).collect()
}
