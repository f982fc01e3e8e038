//! The stated shape of a model's input, in the configuration.

use std::borrow::Cow;

use lapwing_onnx::AxisLengths;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The stated shape of an input. Text: `1,3,224,224`; a list of lengths in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "InputShapeGiven", into = "String")]
pub struct InputShape(pub AxisLengths);

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be lengths, as in 1,3,224,224 or [1, 3, 224, 224]")]
enum InputShapeGiven {
    Text(String),
    List(Vec<i64>),
}

impl TryFrom<InputShapeGiven> for InputShape {
    type Error = String;

    fn try_from(given: InputShapeGiven) -> Result<Self, String> {
        let text = match given {
            InputShapeGiven::Text(text) => text,
            InputShapeGiven::List(lengths) if lengths.is_empty() => "scalar".to_owned(),
            InputShapeGiven::List(lengths) => lengths.iter().map(i64::to_string).collect::<Vec<_>>().join(","),
        };
        text.parse().map(Self)
    }
}

impl From<InputShape> for String {
    fn from(shape: InputShape) -> Self {
        shape.0.to_string()
    }
}

impl JsonSchema for InputShape {
    fn schema_name() -> Cow<'static, str> {
        "InputShape".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "lengths, as in `1,3,224,224`",
            "anyOf": [
                {"type": "string", "pattern": r"^\s*\[?\s*(scalar|(-1|\?|[1-9][0-9]*)(\s*,\s*(-1|\?|[1-9][0-9]*))*)\s*\]?\s*$"},
                {"type": "array", "items": {"type": "integer", "minimum": -1}},
                {"type": "integer", "minimum": -1}
            ]
        })
    }
}
