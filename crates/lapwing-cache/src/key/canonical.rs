//! JSON values of which the order of keys, white space and escapes do not matter.
//!
//! Whole numbers and others stay apart: servers tell `1` from `1.0` in parameters. What two parsers may read differently is
//! refused: keys that are there twice, whole numbers beyond 64 bits, and `-0`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::fields::FieldHasher;

/// How many values a document may have beside the data of its tensors. One takes up to about a hundred bytes.
const MAX_VALUES: u32 = 16_384;
/// From here, a number without a fraction may have been a whole number that does not fit.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// How many values may still come.
#[derive(Debug)]
pub(crate) struct ValueBudget(Cell<u32>);

impl Default for ValueBudget {
    fn default() -> Self {
        Self(Cell::new(MAX_VALUES))
    }
}

impl ValueBudget {
    /// Takes one.
    pub(crate) fn take<E: Error>(&self) -> Result<(), E> {
        let left = self.0.get().checked_sub(1).ok_or_else(|| E::custom("too many values"))?;
        self.0.set(left);
        Ok(())
    }
}

/// The members of an object, by their keys.
pub(crate) type Members = BTreeMap<String, CanonicalValue>;

/// A value of a JSON document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CanonicalValue {
    Null,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Fraction(f64),
    Text(String),
    List(Vec<Self>),
    Object(Members),
}

impl CanonicalValue {
    /// The member of an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        if let Self::Object(members) = self { members.get(key) } else { None }
    }

    /// The recursion is as deep as the document, which serde_json bounds at 128.
    pub(crate) fn hash(&self, hasher: &mut FieldHasher) {
        match self {
            Self::Null => hasher.raw(&[0]),
            Self::Bool(value) => hasher.raw(&[1, u8::from(*value)]),
            Self::Unsigned(number) => {
                hasher.raw(&[2]);
                hasher.number(*number);
            }
            Self::Negative(number) => {
                hasher.raw(&[3]);
                hasher.raw(&number.to_le_bytes());
            }
            Self::Fraction(number) => {
                hasher.raw(&[4]);
                hasher.number(number.to_bits());
            }
            Self::Text(text) => {
                hasher.raw(&[5]);
                hasher.value(text.as_bytes());
            }
            Self::List(values) => {
                hasher.raw(&[6]);
                hasher.count(values.len());
                values.iter().for_each(|value| value.hash(hasher));
            }
            Self::Object(members) => {
                hasher.raw(&[7]);
                hash_members(members, hasher);
            }
        }
    }
}

/// The members of an object.
pub(crate) fn hash_members(members: &Members, hasher: &mut FieldHasher) {
    hasher.count(members.len());
    for (key, value) in members {
        hasher.value(key.as_bytes());
        value.hash(hasher);
    }
}

/// Reads a value within a budget.
#[derive(Clone, Copy)]
pub(crate) struct ReadValue<'b>(pub(crate) &'b ValueBudget);

impl<'de> DeserializeSeed<'de> for ReadValue<'_> {
    type Value = CanonicalValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<CanonicalValue, D::Error> {
        self.0.take()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ReadValue<'_> {
    type Value = CanonicalValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that all parsers read alike")
    }

    fn visit_unit<E: Error>(self) -> Result<CanonicalValue, E> {
        Ok(CanonicalValue::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<CanonicalValue, E> {
        Ok(CanonicalValue::Bool(value))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<CanonicalValue, E> {
        Ok(CanonicalValue::Unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<CanonicalValue, E> {
        Ok(CanonicalValue::Negative(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<CanonicalValue, E> {
        let is_told = number.abs() < WHOLE && !(number == 0.0 && number.is_sign_negative());
        if is_told { Ok(CanonicalValue::Fraction(number)) } else { Err(E::custom("a number that parsers read differently")) }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CanonicalValue, E> {
        Ok(CanonicalValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<CanonicalValue, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = elements.next_element_seed(self)? {
            list.push(value);
        }
        Ok(CanonicalValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<CanonicalValue, A::Error> {
        let mut members = Members::new();
        while let Some(key) = entries.next_key::<String>()? {
            insert_once(&mut members, key, entries.next_value_seed(self)?)?;
        }
        Ok(CanonicalValue::Object(members))
    }
}

/// Adds a member whose key must be a new one.
pub(crate) fn insert_once<E: Error>(members: &mut Members, key: String, value: CanonicalValue) -> Result<(), E> {
    match members.insert(key, value) {
        None => Ok(()),
        Some(_) => Err(E::custom("a key that is there twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<CanonicalValue> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = ReadValue(&ValueBudget::default()).deserialize(&mut deserializer).ok()?;
        deserializer.end().ok().map(|()| value)
    }

    #[test]
    fn values_are_equal_if_every_parser_reads_them_alike() {
        for (one, other) in
            [(r#"{"a": 1, "b": [true, null]}"#, r#"{ "b":[true,null],"\u0061":1}"#), ("1.50", "15e-1"), (r#""é""#, r#""\u00e9""#)]
        {
            assert_eq!(read(one).unwrap(), read(other).unwrap(), "{one} {other}");
        }
        for (one, other) in [("1", "1.0"), ("[1, 2]", "[2, 1]"), ("null", "false"), ("\"1\"", "1"), ("{}", "[]"), ("0", "0.0")] {
            assert_ne!(read(one).unwrap(), read(other).unwrap(), "{one} {other}");
        }
        for refused in ["-0", "-0.0", "18446744073709551616", "1e300", r#"{"a": 1, "\u0061": 1}"#, r#""\ud800""#, "NaN", "[1"] {
            assert!(read(refused).is_none(), "{refused}");
        }
        assert!(read("18446744073709551615").is_some() && read("-9223372036854775808").is_some());
    }

    #[test]
    fn what_is_read_is_bounded() {
        let list = |len: usize| format!("[{}1]", "1,".repeat(len - 1));
        assert!(read(&list(MAX_VALUES as usize - 1)).is_some());
        assert!(read(&list(MAX_VALUES as usize)).is_none());
        assert!(read(&"[".repeat(1 << 20)).is_none());
        assert!(read(&format!("{}{}", "[".repeat(500), "]".repeat(500))).is_none());
    }
}
