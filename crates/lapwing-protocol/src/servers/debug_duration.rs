//! Parses a duration as Rust's `Debug` writes it (`1.2s`, `11.23ms`, `686.2µs`, `5ns`), into nanoseconds.

/// The duration in nanoseconds; `None` if the text is not a duration or is too long.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let digits: usize = match unit {
        "s" => 9,
        "ms" => 6,
        // the micro sign, the Greek letter that some software turns it into, and plain ASCII
        "\u{b5}s" | "\u{3bc}s" | "us" => 3,
        "ns" => 0,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().ok()?;
    if number.ends_with('.') || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut ns = whole.checked_mul(10_u64.pow(u32::try_from(digits).ok()?))?;
    for (at, digit) in fraction.bytes().take(digits).enumerate() {
        let place = 10_u64.pow(u32::try_from(digits - 1 - at).ok()?);
        ns = ns.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(ns)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_servers_write_is_read() {
        for (text, ns) in [
            ("1.2s", 1_200_000_000),
            ("11.23ms", 11_230_000),
            ("686.2µs", 686_200),
            ("686.2μs", 686_200),
            ("5ns", 5),
            ("0ns", 0),
            (" 3ms ", 3_000_000),
        ] {
            assert_eq!(parse(text), Some(ns), "{text}");
        }
        for wrong in ["", "s", "1", "1.s", ".5s", "1.2.3s", "-1s", "1 s", "1m", "1e3s", "+1s", "99999999999999s", "1.5\u{661}s"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn whatever_rust_writes_is_read_back(ns in any::<u64>()) {
            let duration = Duration::from_nanos(ns);
            prop_assert_eq!(parse(&format!("{duration:?}")), Some(ns));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}", number in "[0-9.]{0,30}", unit in "(s|ms|µs|ns|)") {
            let _ = parse(&text);
            let _ = parse(&format!("{number}{unit}"));
        }
    }
}
