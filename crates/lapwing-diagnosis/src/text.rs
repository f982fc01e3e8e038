//! How figures are written in sentences.

use super::quantity::{Form, Quantities, Quantity};

/// A duration in nanoseconds with three digits: `212 ms`, `1.25 s`.
#[must_use]
pub fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if !ns.is_finite() => return "an unknown time".to_owned(),
        ns if ns >= 999.5e6 => (ns / 1e9, "s"),
        ns if ns >= 999.5e3 => (ns / 1e6, "ms"),
        ns if ns >= 999.5 => (ns / 1e3, "µs"),
        ns => (ns, "ns"),
    };
    format!("{} {unit}", number(value))
}

/// A number with three digits.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn bytes(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} MB", number(value / 1e6)),
        value if value >= 1e3 => format!("{} kB", number(value / 1e3)),
        value => format!("{} bytes", number(value)),
    }
}

/// A quantity's value in words.
pub(crate) fn quantity(quantity: Quantity, value: f64) -> String {
    match quantity.form() {
        _ if !value.is_finite() => "unknown".to_owned(),
        Form::Seconds => duration(value * 1e9),
        Form::Requests => format!("{value:.0}"),
        Form::Bytes => bytes(value),
        Form::BytesPerSecond => format!("{}/s", bytes(value)),
        Form::Ratio if quantity.name().ends_with("_ratio") => number(value),
        Form::Ratio => percent(value),
        Form::Number => number(value),
    }
}

/// Replaces `{share}`, `{time}` and names of quantities in braces.
pub(crate) fn fill(template: &str, share: f64, time: &str, quantities: &Quantities) -> String {
    let mut text = template.replace("{share}", &percent(share)).replace("{time}", time);
    for named in Quantity::ALL {
        let place = format!("{{{}}}", named.name());
        if text.contains(&place) {
            text = text.replace(&place, &quantity(*named, quantities.get(*named)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        let written = [0.0, 12.0, 1_234.0, 999_600.0, 212.4e6, 1.25e9, 61e9, f64::NAN].map(duration);
        assert_eq!(written, ["0 ns", "12 ns", "1.23 µs", "1 ms", "212 ms", "1.25 s", "61 s", "an unknown time"]);
        assert_eq!(quantity(Quantity::TransferRate, 2_500_000.0), "2.5 MB/s");
        assert_eq!(quantity(Quantity::BurstSize, 40.2), "40");
        assert_eq!(quantity(Quantity::WorkRatio, 12.34), "12.3");
        assert_eq!(quantity(Quantity::MissRate, 0.616), "62 %");
    }
}
