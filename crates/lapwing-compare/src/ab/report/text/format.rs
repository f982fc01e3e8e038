//! Numbers as people read them.

use crate::ab::report::IntervalEstimate;

/// A count with a comma before each group of three digits.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many decimals a factor and its bounds have: about three digits, one more near 1.
pub(crate) fn decimals(factor: f64) -> usize {
    match factor {
        100.0.. => 0,
        10.0.. => 1,
        0.85..1.15 => 3,
        _ => 2,
    }
}

/// A share in percent: whole between 1 and 99 %, with as many decimals nearer to 0 and 100 % as tell it from them.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.min(100.0 - percent) {
        0.0 => format!("{percent:.0} %"),
        1.0.. => format!("{percent:.0} %"),
        0.01.. => format!("{percent:.2} %"),
        _ => format!("{percent:.4} %"),
    }
}

/// An interval of ratios as a difference: "0.1 to 0.9 % slower", "3.0 % faster to 8.0 % slower", "2.0 to 5.0 % faster".
pub(crate) fn difference(ratio: &IntervalEstimate) -> String {
    let percent = |ratio: f64| (100.0 * (ratio - 1.0)).abs();
    let (low, high) = (ratio.low, ratio.high.unwrap_or(f64::INFINITY));
    if high <= 1.0 {
        format!("{:.1} to {:.1} % faster", percent(high), percent(low))
    } else if low >= 1.0 {
        format!("{:.1} to {:.1} % slower", percent(low), percent(high))
    } else {
        format!("{:.1} % faster to {:.1} % slower", percent(low), percent(high))
    }
}

/// A time in seconds, minutes or hours, for people who decide whether to wait.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    }
}
