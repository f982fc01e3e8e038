//! Numbers for people: durations of three digits with a fitting unit, and shares in percent.

/// Nanoseconds as `640 ns`, `12.3 µs`, `1.23 ms` or `2.10 s`; three digits, at least zero.
pub fn duration(ns: f64) -> String {
    let mut value = ns.max(0.0);
    if value < 999.5 {
        return format!("{value:.0} ns");
    }
    for unit in ["µs", "ms"] {
        value /= 1e3;
        // Half a unit below a thousand would round up to four digits.
        if value < 999.5 {
            return format!("{} {unit}", three_digits(value));
        }
    }
    format!("{} s", three_digits(value / 1e3))
}

/// Picoseconds as `640 ps`, else as [`duration`] shows them.
pub(crate) fn duration_ps(ps: f64) -> String {
    if ps < 999.5 { format!("{:.0} ps", ps.max(0.0)) } else { duration(ps / 1e3) }
}

fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A share of `0.0..=1.0` as `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits_across_every_border() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (640.4, "640 ns"),
            (999.6, "1.00 µs"),
            (1_234.0, "1.23 µs"),
            (9_996.0, "10.0 µs"),
            (99_960.0, "100 µs"),
            (999_499.0, "999 µs"),
            (999_600.0, "1.00 ms"),
            (12_345_678.0, "12.3 ms"),
            (2_100_000_000.0, "2.10 s"),
            (3_600_000_000_000.0, "3600 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
