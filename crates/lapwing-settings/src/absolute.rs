//! How far numbers may be apart, in their own unit: `auto`, or a number.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Invalid;

/// A tolerance in the unit of the numbers. As text `auto` or a number; a number stays one in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum AbsoluteTolerance {
    /// It follows from how large the numbers are. Text: `auto`.
    #[default]
    Auto,
    /// This much.
    Of(f64),
}

impl AbsoluteTolerance {
    /// The number, if one is given.
    #[must_use]
    pub const fn given(self) -> Option<f64> {
        match self {
            Self::Auto => None,
            Self::Of(absolute) => Some(absolute),
        }
    }
}

impl FromStr for AbsoluteTolerance {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            number => number.parse().map(Self::Of).map_err(|_| Invalid::new(text, "must be auto, or a number as in 1e-3")),
        }
    }
}

impl fmt::Display for AbsoluteTolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Of(absolute) => absolute.fmt(f),
        }
    }
}

impl Serialize for AbsoluteTolerance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Of(absolute) => serializer.serialize_f64(*absolute),
        }
    }
}

impl<'de> Deserialize<'de> for AbsoluteTolerance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::text::deserialize(deserializer, "auto, or a number")
    }
}

impl JsonSchema for AbsoluteTolerance {
    fn schema_name() -> Cow<'static, str> {
        "AbsoluteTolerance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"title": "`auto` or number", "anyOf": [{"type": "number"}, {"const": "auto"}]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_auto() {
        for (text, expected) in
            [("auto", AbsoluteTolerance::Auto), ("1e-4", AbsoluteTolerance::Of(1e-4)), ("0", AbsoluteTolerance::Of(0.0))]
        {
            assert_eq!(text.parse::<AbsoluteTolerance>().unwrap(), expected);
        }
        assert_eq!(serde_json::to_string(&[AbsoluteTolerance::Auto, AbsoluteTolerance::Of(0.5)]).unwrap(), r#"["auto",0.5]"#);
        assert!("much".parse::<AbsoluteTolerance>().unwrap_err().reason.contains("auto"));
    }
}
