//! A setting that can be turned off: `off`, or a value.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Invalid;

/// `off`, or a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Switch<T> {
    /// Off. Text: `off` (in a file also `false`).
    #[default]
    Off,
    /// On, with this value.
    On(T),
}

impl<T> Switch<T> {
    /// The value, unless off.
    pub const fn on(&self) -> Option<&T> {
        match self {
            Self::Off => None,
            Self::On(value) => Some(value),
        }
    }

    /// Whether there is a value.
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::On(_))
    }
}

impl<T: FromStr<Err = Invalid>> FromStr for Switch<T> {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.trim() == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::On).map_err(|Invalid { value, reason }| Invalid { value, reason: or_off(&reason) })
    }
}

impl<T: fmt::Display> fmt::Display for Switch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::On(value) => value.fmt(f),
        }
    }
}

impl<T: Serialize> Serialize for Switch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::On(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for Switch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        if value == "off" || value == false {
            return Ok(Self::Off);
        }
        T::deserialize(value).map(Self::On).map_err(|error| D::Error::custom(or_off(&error.to_string())))
    }
}

impl<T: JsonSchema> JsonSchema for Switch<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Switch_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"enum": ["off", false]}, generator.subschema_for::<T>()]})
    }
}

fn or_off(reason: &str) -> String {
    format!("{reason}; or off")
}
