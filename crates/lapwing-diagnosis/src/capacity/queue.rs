//! A queue in the order of arrival, simulated: each request starts when the first slot is free (Kiefer and Wolfowitz, 1955).

use super::service::Request;

/// The share of the requests at the start that are left out, because the queue begins empty.
const WARM_UP: usize = 10;

/// The quantile of the time from arrival to end, in nanoseconds, at `rate` requests a second and with `slots` slots.
/// Takes a step for each request and slot.
pub(crate) fn quantile_ns(requests: &[Request], slots: u32, rate: f64, quantile: f64) -> f64 {
    let mean_gap_ns = 1e9 / rate.max(1e-9);
    let mut free = vec![0.0_f64; slots.clamp(1, 64) as usize];
    let mut now = 0.0;
    let mut times = Vec::with_capacity(requests.len());
    for request in requests {
        now += request.gap * mean_gap_ns;
        let mut first = 0;
        for slot in 1..free.len() {
            if free[slot] < free[first] {
                first = slot;
            }
        }
        let end = free[first].max(now) + request.service_ns;
        free[first] = end;
        times.push(end + request.late_ns - now);
    }
    times.drain(..times.len() / WARM_UP);
    if times.is_empty() {
        return 0.0;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place within the times")]
    let at = ((times.len() as f64 * quantile) as usize).min(times.len() - 1);
    *times.select_nth_unstable_by(at, f64::total_cmp).1
}
