//! The Open Inference Protocol's JSON, as far as the demo speaks it: one flat tensor in, two out.
//!
//! See <https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md>.

use serde::{Deserialize, Serialize};

use super::data::WIDTH;

/// The most rows that one request may hold.
pub(super) const MAX_ROWS: usize = 256;

/// A fault of the client's; becomes status 400.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadRequest {
    /// The body is longer than allowed, or broke off.
    #[error("body: {0}")]
    Body(String),
    /// The body is not the JSON of an inference request.
    #[error("body: not an inference request: {0}")]
    Json(#[from] serde_json::Error),
    /// Not exactly one input.
    #[error("inputs: expected one tensor, `pixels` or `entity_ids`, got {0}")]
    Inputs(usize),
    /// An input of another name.
    #[error("inputs[0].name: expected `pixels` or `entity_ids`, got `{0}`")]
    Name(String),
    /// An input of another type.
    #[error("{tensor}.datatype: expected {expected}, got `{got}`")]
    Datatype { tensor: &'static str, expected: &'static str, got: String },
    /// An input of another shape, or with too many rows or none.
    #[error("{tensor}.shape: expected {expected} with 1 to 256 rows, got {got:?}")]
    Shape { tensor: &'static str, expected: &'static str, got: Vec<usize> },
    /// The data does not fill the shape.
    #[error("{tensor}.data: expected {expected} values, got {got}")]
    Data { tensor: &'static str, expected: usize, got: usize },
    /// An id that is no whole number.
    #[error("entity_ids.data: {0:?} is not a whole number")]
    Fraction(f64),
    /// An entity that the feature table cannot give.
    #[error(transparent)]
    Lookup(#[from] super::features::LookupError),
}

/// An inference request; unknown members are ignored, as the protocol allows extensions.
#[derive(Debug, Deserialize)]
pub(super) struct InferRequest {
    /// Echoed in the response.
    pub id: Option<String>,
    inputs: Vec<InputTensor>,
}

#[derive(Debug, Deserialize)]
struct InputTensor {
    name: String,
    shape: Vec<usize>,
    datatype: String,
    data: Vec<f64>,
}

/// What a valid request asks to be classified.
#[derive(Debug, PartialEq)]
pub(super) enum Input {
    /// Raw pixels, rows laid end to end.
    Pixels(Vec<f32>),
    /// Rows to be looked up.
    EntityIds(Vec<i64>),
}

impl InferRequest {
    /// Checks the one input and takes it out.
    pub(super) fn into_input(self) -> Result<Input, BadRequest> {
        let [tensor] = <[InputTensor; 1]>::try_from(self.inputs).map_err(|all| BadRequest::Inputs(all.len()))?;
        match tensor.name.as_str() {
            "pixels" => {
                tensor.check("pixels", "FP32", "[N, 64]", &[WIDTH])?;
                Ok(Input::Pixels(tensor.data.into_iter().map(|v| v as f32).collect()))
            }
            "entity_ids" => {
                tensor.check("entity_ids", "INT64", "[N]", &[])?;
                tensor.data.into_iter().map(whole).collect::<Result<_, _>>().map(Input::EntityIds)
            }
            other => Err(BadRequest::Name(other.to_owned())),
        }
    }
}

impl InputTensor {
    /// Compares type, shape and length with what the model takes; `row` is the shape of one row.
    fn check(&self, tensor: &'static str, datatype: &'static str, shape: &'static str, row: &[usize]) -> Result<(), BadRequest> {
        if self.datatype != datatype {
            return Err(BadRequest::Datatype { tensor, expected: datatype, got: self.datatype.clone() });
        }
        let rows = match self.shape.split_first() {
            Some((rows, rest)) if (1..=MAX_ROWS).contains(rows) && rest == row => *rows,
            _ => return Err(BadRequest::Shape { tensor, expected: shape, got: self.shape.clone() }),
        };
        let expected = rows * row.iter().product::<usize>();
        let got = self.data.len();
        if got == expected { Ok(()) } else { Err(BadRequest::Data { tensor, expected, got }) }
    }
}

/// JSON has one kind of number; ids must be whole and within the range where a double counts exactly.
fn whole(value: f64) -> Result<i64, BadRequest> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT { Ok(value as i64) } else { Err(BadRequest::Fraction(value)) }
}

/// An inference response: the `k` best labels of each row and their probabilities.
#[derive(Debug, Serialize)]
pub(super) struct InferResponse<'a> {
    pub model_name: &'a str,
    pub model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    pub outputs: (OutputTensor<'a, i64>, OutputTensor<'a, f32>),
}

/// One tensor of a response.
#[derive(Debug, Serialize)]
pub(super) struct OutputTensor<'a, T> {
    pub name: &'a str,
    pub shape: [usize; 2],
    pub datatype: &'a str,
    pub data: &'a [T],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Input, BadRequest> {
        serde_json::from_str::<InferRequest>(json)?.into_input()
    }

    #[test]
    fn both_inputs_are_read() {
        let ids = read(r#"{"inputs":[{"name":"entity_ids","shape":[2],"datatype":"INT64","data":[7,-1]}],"x":1}"#).unwrap();
        assert_eq!(ids, Input::EntityIds(vec![7, -1]));
        let data = vec!["1.5"; 64].join(",");
        let pixels = read(&format!(r#"{{"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{data}]}}]}}"#));
        assert_eq!(pixels.unwrap(), Input::Pixels(vec![1.5; 64]));
    }

    #[test]
    fn each_fault_is_named_with_what_was_expected_and_got() {
        let input = |name: &str, shape: &str, kind: &str, data: &str| {
            format!(r#"{{"inputs":[{{"name":"{name}","shape":{shape},"datatype":"{kind}","data":{data}}}]}}"#)
        };
        for (json, fault) in [
            (r#"{"inputs":[]}"#.to_owned(), "inputs: expected one tensor, `pixels` or `entity_ids`, got 0"),
            (input("x", "[1]", "FP32", "[1]"), "inputs[0].name: expected `pixels` or `entity_ids`, got `x`"),
            (input("pixels", "[1,64]", "FP64", "[1]"), "pixels.datatype: expected FP32, got `FP64`"),
            (input("pixels", "[1,63]", "FP32", "[1]"), "pixels.shape: expected [N, 64] with 1 to 256 rows, got [1, 63]"),
            (input("pixels", "[0,64]", "FP32", "[]"), "pixels.shape: expected [N, 64] with 1 to 256 rows, got [0, 64]"),
            (input("pixels", "[257,64]", "FP32", "[]"), "pixels.shape: expected [N, 64] with 1 to 256 rows, got [257, 64]"),
            (input("pixels", "[2,64]", "FP32", "[1,2]"), "pixels.data: expected 128 values, got 2"),
            (input("entity_ids", "[1]", "INT64", "[1.5]"), "entity_ids.data: 1.5 is not a whole number"),
            (input("entity_ids", "[1]", "INT64", "[1e300]"), "entity_ids.data: 1e300 is not a whole number"),
        ] {
            assert_eq!(read(&json).unwrap_err().to_string(), fault);
        }
        let nested = input("pixels", "[1,1]", "FP32", "[[1]]");
        assert!(read(&nested).unwrap_err().to_string().starts_with("body: not an inference request: invalid type: sequence"));
    }
}
