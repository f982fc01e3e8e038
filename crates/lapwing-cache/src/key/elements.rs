//! The elements of a tensor, as the bytes that a server makes of them: little-endian, in the order of rows.
//!
//! From JSON, a number is only taken if every way to read it leads to the same element: as a whole number or by way of a double,
//! and directly or rounded twice. Elements of 16 bits are kept as the doubles that JSON has.

use std::borrow::Cow;

use super::datatype::Datatype;
use super::fields::FieldHasher;

/// Elements follow as a binary tensor has them.
const AS_ELEMENTS: u8 = 0;
/// Elements follow as doubles.
const AS_DOUBLES: u8 = 1;
/// The most dimensions of a tensor.
pub(crate) const MAX_RANK: usize = 16;
/// Up to here a double has every whole number.
const WHOLE: u64 = 1 << 53;
/// The bits of a double that one of 32 bits does not have, and what they are half-way between two of those.
const BELOW_SINGLE: u64 = (1 << 29) - 1;
const HALF_WAY: u64 = 1 << 28;

/// Hashes `data`, which is valid JSON: a list of so many elements as `shape` says, or lists of lists with its dimensions. `None`
/// if it is anything else.
pub(crate) fn hash_json(hasher: &mut FieldHasher, data: &str, shape: &[u64], datatype: Datatype) -> Option<()> {
    hasher.raw(&[if datatype == Datatype::Half { AS_DOUBLES } else { AS_ELEMENTS }]);
    let count = count_of(shape)?;
    hasher.number(count);
    let bytes = data.as_bytes();
    let mut nesting = Nesting::new(shape, count);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' => {}
            b'[' => nesting.open()?,
            b']' => nesting.close()?,
            _ => {
                nesting.element()?;
                let from = at - 1;
                at = end_of_scalar(bytes, from);
                hash_scalar(hasher, data.get(from..at)?, datatype)?;
            }
        }
    }
    nesting.is_done.then_some(())
}

/// Hashes a binary tensor; `None` if it has not as many elements as `shape` says.
pub(crate) fn hash_binary(hasher: &mut FieldHasher, data: &[u8], shape: &[u64], datatype: Datatype) -> Option<()> {
    hasher.raw(&[AS_ELEMENTS]);
    let count = count_of(shape)?;
    hasher.number(count);
    if let Some(width) = datatype.width() {
        if u64::try_from(data.len()) != Ok(count.checked_mul(width as u64)?) {
            return None;
        }
        hasher.raw(data);
        return Some(());
    }
    let (mut rest, mut elements) = (data, 0);
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (element, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        hasher.value(element);
        rest = after;
        elements += 1;
    }
    (rest.is_empty() && elements == count).then_some(())
}

fn count_of(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |count, dim| count.checked_mul(*dim))
}

/// Where in lists of lists a reader is.
struct Nesting<'s> {
    shape: &'s [u64],
    count: u64,
    /// How many each open list has had so far.
    lens: [u64; MAX_RANK],
    depth: usize,
    /// Whether there is a list in the first; `None` before anything is in it.
    is_nested: Option<bool>,
    is_done: bool,
}

impl<'s> Nesting<'s> {
    fn new(shape: &'s [u64], count: u64) -> Self {
        Self { shape, count, lens: [0; MAX_RANK], depth: 0, is_nested: None, is_done: false }
    }

    /// Another one in the list that is open.
    fn add(&mut self) -> Option<()> {
        *self.lens.get_mut(self.depth.checked_sub(1)?)? += 1;
        Some(())
    }

    fn open(&mut self) -> Option<()> {
        if self.is_done {
            return None;
        }
        if self.depth > 0 {
            if !*self.is_nested.get_or_insert(true) || self.depth >= self.shape.len() {
                return None;
            }
            self.add()?;
        }
        *self.lens.get_mut(self.depth)? = 0;
        self.depth += 1;
        Some(())
    }

    fn element(&mut self) -> Option<()> {
        let is_nested = *self.is_nested.get_or_insert(false);
        if self.depth != if is_nested { self.shape.len() } else { 1 } {
            return None;
        }
        self.add()
    }

    fn close(&mut self) -> Option<()> {
        let level = self.depth.checked_sub(1)?;
        let expected = if self.is_nested == Some(true) { *self.shape.get(level)? } else { self.count };
        if *self.lens.get(level)? != expected {
            return None;
        }
        self.depth = level;
        self.is_done = level == 0;
        Some(())
    }
}

/// Where the scalar ends that begins at `from`.
fn end_of_scalar(bytes: &[u8], from: usize) -> usize {
    if bytes.get(from) != Some(&b'"') {
        let len = bytes
            .get(from..)
            .and_then(|rest| rest.iter().position(|byte| matches!(byte, b',' | b']' | b' ' | b'\t' | b'\n' | b'\r')));
        return len.map_or(bytes.len(), |len| from + len);
    }
    let mut at = from + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn hash_scalar(hasher: &mut FieldHasher, token: &str, datatype: Datatype) -> Option<()> {
    match datatype {
        Datatype::Bool => match token {
            "true" => hasher.raw(&[1]),
            "false" => hasher.raw(&[0]),
            _ => return None,
        },
        Datatype::Unsigned(width) => hasher.raw(whole(token, 0, u64::MAX >> (64 - 8 * width))?.to_le_bytes().get(..width)?),
        Datatype::Signed(width) => {
            let limit = 1_u64 << (8 * width - 1);
            hasher.raw(whole(token, limit, limit - 1)?.to_le_bytes().get(..width)?);
        }
        Datatype::Half => hasher.raw(&double(token)?.to_le_bytes()),
        Datatype::Single => hasher.raw(&single(double(token)?)?.to_le_bytes()),
        Datatype::Double => hasher.raw(&double(token)?.to_le_bytes()),
        Datatype::Bytes => hasher.value(text(token)?.as_bytes()),
    }
    Some(())
}

/// A whole number from `-lowest` to `highest`, in two's complement.
fn whole(token: &str, lowest: u64, highest: u64) -> Option<u64> {
    match token.strip_prefix('-') {
        Some(digits) => magnitude(digits).filter(|number| (1..=lowest).contains(number)).map(u64::wrapping_neg),
        None => magnitude(token).filter(|number| *number <= highest),
    }
}

fn magnitude(digits: &str) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.bytes().try_fold(0_u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(digit.into()) }
    })
}

/// A number; `None` if servers read it differently.
fn double(token: &str) -> Option<f64> {
    let (is_negative, digits) = token.strip_prefix('-').map_or((false, token), |digits| (true, digits));
    if let Some(number) = magnitude(digits) {
        // the whole number -0 is 0, the fraction is not
        let is_told = number <= WHOLE && !(is_negative && number == 0);
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
        let number = number as f64;
        return is_told.then_some(if is_negative { -number } else { number });
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    token
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && token.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']))
}

/// The number of 32 bits that is next to it; `None` if its digits might have led to another one without a double in between.
fn single(number: f64) -> Option<f32> {
    let is_half_way = number.to_bits() & BELOW_SINGLE == HALF_WAY;
    let is_exponent_small = number != 0.0 && number.abs() < f64::from(f32::MIN_POSITIVE);
    #[expect(clippy::cast_possible_truncation, reason = "the next number is wanted")]
    let single = number as f32;
    (single.is_finite() && !is_half_way && !is_exponent_small).then_some(single)
}

fn text(token: &str) -> Option<Cow<'_, str>> {
    let inner = token.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str::<String>(token).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(data: &str, shape: &[u64], datatype: &str) -> Option<[u8; 32]> {
        let mut hasher = FieldHasher::new(&[1; 32]);
        hash_json(&mut hasher, data, shape, Datatype::parse(datatype).unwrap())?;
        Some(hasher.finish())
    }

    fn binary(data: &[u8], shape: &[u64], datatype: &str) -> Option<[u8; 32]> {
        let mut hasher = FieldHasher::new(&[1; 32]);
        hash_binary(&mut hasher, data, shape, Datatype::parse(datatype).unwrap())?;
        Some(hasher.finish())
    }

    #[test]
    fn lists_have_the_shape_or_are_flat() {
        let flat = json("[1, 2, 3, 4, 5, 6]", &[2, 3], "INT8").unwrap();
        assert_eq!(json("[[1,2,3],[4,5,6]]", &[2, 3], "INT8"), Some(flat));
        assert_ne!(json("[[1,2],[3,4],[5,6]]", &[3, 2], "INT8"), None);
        for odd in [
            "[[1,2],[3,4],[5,6]]",
            "[[1,2,3],[4,5]]",
            "[[1,2,3],4,5,6]",
            "[1,2,3,[4,5,6]]",
            "[[[1,2,3]],[[4,5,6]]]",
            "[1,2,3]",
            "[]",
            "1",
        ] {
            assert_eq!(json(odd, &[2, 3], "INT8"), None, "{odd}");
        }
        assert!(
            json("[]", &[0], "INT8").is_some()
                && json("[[],[]]", &[2, 0], "INT8").is_some()
                && json("[]", &[2, 0], "INT8").is_some()
        );
        assert!(json("[7]", &[], "INT8").is_some() && json("7", &[], "INT8").is_none());
        assert!(json("[1]", &[u64::MAX, 2], "INT8").is_none());
    }

    #[test]
    fn numbers_are_the_elements_that_they_become() {
        for (datatype, one, other) in [
            ("FP32", "1", "1.0"),
            ("FP32", "10e-1", "1"),
            ("FP32", "0.1", "0.10000000149011612"),
            ("FP64", "0.1", "1e-1"),
            ("FP16", "0.5", "5e-1"),
            ("BYTES", r#""a\u00e9""#, r#""aé""#),
        ] {
            let hash = |token| json(&format!("[{token}]"), &[1], datatype).unwrap();
            assert_eq!(hash(one), hash(other), "{datatype} {one} {other}");
        }
        for (datatype, one, other) in [
            ("FP64", "0.1", "0.10000000149011612"),
            ("FP32", "0.0", "-0.0"),
            ("FP16", "0.1", "0.10000000149011612"),
            ("INT8", "1", "-1"),
            ("BYTES", r#""a""#, r#""A""#),
            ("BYTES", r#""\\""#, r#""/""#),
        ] {
            let hash = |token| json(&format!("[{token}]"), &[1], datatype).unwrap();
            assert_ne!(hash(one), hash(other), "{datatype} {one} {other}");
        }
        for (datatype, token) in [
            ("INT8", "128"),
            ("INT8", "-129"),
            ("INT8", "1.0"),
            ("INT8", "-0"),
            ("UINT8", "256"),
            ("UINT8", "-1"),
            ("UINT64", "18446744073709551616"),
            ("INT64", "9223372036854775808"),
            ("FP32", "-0"),
            ("FP32", "1e39"),
            ("FP32", "1e-40"),
            ("FP64", "1e400"),
            ("FP64", "9007199254740993"),
            ("FP64", "123456789012345678901234567890"),
            // half-way between two of 32 bits: as a double it is even, by its digits the next one
            ("FP32", "1.000000059604644775390625"),
            ("FP32", "1.0000000596046447753906251"),
            ("BOOL", "1"),
            ("FP32", "true"),
            ("FP32", "null"),
            ("FP32", "\"1\""),
            ("BYTES", "1"),
            ("BYTES", r#""\ud800""#),
        ] {
            assert_eq!(json(&format!("[{token}]"), &[1], datatype), None, "{datatype} {token}");
        }
        assert!(json("[-128, 127]", &[2], "INT8").is_some() && json("[18446744073709551615]", &[1], "UINT64").is_some());
    }

    #[test]
    fn json_and_binary_are_the_same_elements() {
        assert_eq!(json("[1, -2]", &[2], "INT16"), binary(&[1, 0, 0xfe, 0xff], &[2], "INT16"));
        assert_ne!(json("[1, -2]", &[2], "INT16"), binary(&[0, 1, 0xff, 0xfe], &[2], "INT16"), "the order of bytes");
        assert_eq!(json("[0.5]", &[1], "FP32"), binary(&0.5_f32.to_le_bytes(), &[1], "FP32"));
        assert_eq!(json(r#"["ab", ""]"#, &[2], "BYTES"), binary(b"\x02\0\0\0ab\0\0\0\0", &[2], "BYTES"));
        for (data, datatype) in
            [(&b"\x02\0\0\0a"[..], "BYTES"), (b"\x01\0\0\0ab", "BYTES"), (b"\x01", "INT16"), (b"\x01\0\0\0", "INT16")]
        {
            assert_eq!(binary(data, &[1], datatype), None, "{datatype} {data:?}");
        }
    }
}
