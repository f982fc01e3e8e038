//! The remainder of Stirling's formula, by which differences of logarithms of gamma functions keep their digits.

/// `ln Γ(z) − ((z − ½) ln z − z + ½ ln 2π)` for `z > 0`, to about 1e-16.
///
/// From 16 on by five terms of Stirling's series, below by the recurrence `σ(z) = σ(z+1) + (z+½) ln(1+1/z) − 1`.
pub(crate) fn stirling_remainder(z: f64) -> f64 {
    let (mut z, mut sum) = (z, 0.0);
    while z < 16.0 {
        sum += (z + 0.5) * (1.0 / z).ln_1p() - 1.0;
        z += 1.0;
    }
    let r = 1.0 / z;
    let r2 = r * r;
    sum + r * (1.0 / 12.0 - r2 * (1.0 / 360.0 - r2 * (1.0 / 1260.0 - r2 * (1.0 / 1680.0 - r2 / 1188.0))))
}
