//! Numbers for people: four digits and an SI prefix.

const PREFIXES: [&str; 9] = ["n", "µ", "m", "", "k", "M", "G", "T", "P"];

/// Formats 3,147,776 as `3.148 M`, or with a unit as `3.148 MFLOP`; zero as `0`.
pub(crate) fn si(value: f64, unit: &str) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value} {unit}").trim_end().to_owned();
    }
    let (mut scaled, mut place) = (value.abs(), 3);
    while scaled >= 999.95 && place < 8 {
        (scaled, place) = (scaled / 1e3, place + 1);
    }
    while scaled < 0.99995 && place > 0 {
        (scaled, place) = (scaled * 1e3, place - 1);
    }
    let digits = if scaled < 9.9995 {
        3
    } else if scaled < 99.995 {
        2
    } else {
        1
    };
    let sign = if value < 0.0 { "-" } else { "" };
    let digits = if place == 3 && value.fract() == 0.0 { 0 } else { digits };
    format!("{sign}{scaled:.digits$} {}{unit}", PREFIXES[place]).trim_end().to_owned()
}

/// Formats a number that may be unknown; `-` if it is.
pub(crate) fn known(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "-".to_owned(), |value| si(value, unit))
}

/// Formats a whole number with commas.
pub(crate) fn whole(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_and_a_prefix() {
        for (value, text) in [
            (3_147_776.0, "3.148 MFLOP"),
            (91.8e9, "91.80 GFLOP"),
            (0.0, "0 FLOP"),
            (512.0, "512 FLOP"),
            (1.5, "1.500 FLOP"),
            (999.96e6, "1.000 GFLOP"),
            (0.000_25, "250.0 µFLOP"),
            (0.999_96, "1.000 FLOP"),
            (-2e3, "-2.000 kFLOP"),
        ] {
            assert_eq!(si(value, "FLOP"), text);
        }
        assert_eq!([whole(0), whole(999), whole(22_565_376)], ["0", "999", "22,565,376"]);
        assert_eq!(known(None, "B"), "-");
    }
}
