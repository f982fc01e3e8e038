//! Serde for types that are text: anything with `FromStr` and `Display`.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserializer;
use serde::de::{Error, Visitor};

use super::Invalid;

/// Reads a `T` from text, or from the text of a number. The error is the reason alone, because the caller that reports it knows
/// path and value.
pub(crate) fn deserialize<'de, T, D>(deserializer: D, expecting: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err = Invalid>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Text { expecting, of: PhantomData })
}

struct Text<T> {
    expecting: &'static str,
    of: PhantomData<T>,
}

impl<T: FromStr<Err = Invalid>> Text<T> {
    fn parse<E: Error>(text: &str) -> Result<T, E> {
        text.parse().map_err(|invalid: Invalid| E::custom(invalid.reason))
    }
}

impl<T: FromStr<Err = Invalid>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Self::parse(text)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Self::parse(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Self::parse(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        Self::parse(&number.to_string())
    }
}

/// `Serialize` by `Display`, `Deserialize` by `FromStr`, and the JSON Schema of the text: its title names the kind of value in tables, its
/// pattern takes every text that `FromStr` takes, and maybe more.
macro_rules! text_serde {
    ($name:ident, $expecting:literal, $schema:tt) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::deserialize(deserializer, $expecting)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}
pub(crate) use text_serde;
