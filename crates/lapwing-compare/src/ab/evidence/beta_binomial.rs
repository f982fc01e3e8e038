//! The exact mixture over pairs: an e-value for a probability that is valid at every sample size and every look.

use super::stirling::stirling_remainder;

/// The natural logarithm of the beta-binomial mixture martingale against `P = q` after `S` successes in `n` trials.
///
/// The mixing distribution is Beta(ρ/(1−q), ρ/q), centred at `q`; 0 < q < 1, 0 ≤ S ≤ n. Equal to
/// `ln B(a+S, b+n−S) − ln B(a, b) − S ln q − (n−S) ln(1−q)`, written so that nothing cancels. Robbins, Ann. Math. Stat. 1970;
/// Howard, Ramdas, McAuliffe and Sekhon, Ann. Stat. 49(2), 2021, proposition 7.
#[allow(non_snake_case, reason = "the letters of the formula")]
pub(crate) fn log_beta_binomial(S: f64, n: f64, q: f64, rho: f64) -> f64 {
    let (a, b) = (rho / (1.0 - q), rho / q);
    let c = a + b;
    let (A, B, C) = (a + S, b + n - S, c + n);
    let s = S - n * q;
    let sigma = stirling_remainder;
    A * (s / (C * q)).ln_1p()
        + B * (-s / (C * (1.0 - q))).ln_1p()
        + 0.5 * ((C * a * b) / (c * A * B)).ln()
        + (sigma(A) + sigma(B) - sigma(C) - sigma(a) - sigma(b) + sigma(c))
}
