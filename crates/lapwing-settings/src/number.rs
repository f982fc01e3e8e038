//! Exact products of a decimal number and a unit, without floating point, so that the printed value is the one that was written.

/// `number` (digits, at most one point) times `unit`. The error is the reason: not a number, not whole, or too large.
pub(crate) fn scaled(number: &str, unit: u128) -> Result<u128, &'static str> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || (whole.is_empty() && part.is_empty()) || number.ends_with('.') {
        return Err("is not a number");
    }
    let part = part.trim_end_matches('0');
    if whole.len() > 20 || part.len() > 18 {
        return Err("has too many digits");
    }
    let parse = |text: &str| if text.is_empty() { 0 } else { text.parse::<u128>().unwrap_or(u128::MAX) };
    let scale = 10_u128.pow(u32::try_from(part.len()).unwrap_or(18));
    let fraction = parse(part).checked_mul(unit).ok_or("is too large")?;
    if fraction % scale != 0 {
        return Err("is finer than the smallest unit");
    }
    parse(whole).checked_mul(unit).and_then(|n| n.checked_add(fraction / scale)).ok_or("is too large")
}

/// The unit in which `amount` is a whole number with the shortest text; the first listed wins a draw.
pub(crate) fn shortest<'a>(amount: u128, units: &[(&'a str, u128)]) -> (u128, &'a str) {
    let whole = units.iter().filter(|(_, unit)| amount.is_multiple_of(*unit)).map(|&(name, unit)| (amount / unit, name));
    whole.min_by_key(|(count, _)| count.checked_ilog10().unwrap_or(0)).unwrap_or((amount, ""))
}
