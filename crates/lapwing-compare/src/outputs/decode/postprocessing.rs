//! What an API makes of a model's output before it answers: one vector of many tokens, probabilities, vectors of length one, one column,
//! a label. It is done to the candidate's output, so that both sides have the same values.
//!
//! Everything is computed in double precision, and is as large as the output at most.

use bytes::{BufMut, Bytes, BytesMut};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AnswerDecodeError;
use super::element::{ElementType, float_bytes};
use super::port::TensorPort;
use super::tensor::{DecodedTensor, TensorData};

/// What makes one vector of those of all tokens of a text. Tokens that only fill it up are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The greatest value of each column.
    Max,
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
}

/// What is computed of each row of the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputActivation {
    /// Probabilities that sum to one.
    Softmax,
    /// A probability of each element.
    Sigmoid,
}

/// What remains of a row of the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The element at this index.
    Column(usize),
    /// The greatest element.
    Max,
    /// The index of the greatest element, the first of equal ones; or its label.
    Argmax,
}

impl Selection {
    /// Parses `argmax`, `max`, or an index.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "argmax" => Some(Self::Argmax),
            "max" => Some(Self::Max),
            index => index.parse().ok().map(Self::Column),
        }
    }
}

/// The steps from a model's output to what an API answers, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Postprocessing {
    /// Over the tokens of each text.
    pub pooling: Option<Pooling>,
    /// Over the last axis.
    pub activation: Option<OutputActivation>,
    /// Whether rows of the last axis are scaled to the length 1.
    pub is_normalised: bool,
    /// What remains of the last axis.
    pub selection: Option<Selection>,
    /// The names of the last axis' elements. With [`Selection::Argmax`] the answer has one of them; without a selection, a number by each.
    pub labels: Vec<String>,
}

impl Postprocessing {
    /// Whether numbers are computed.
    fn is_numeric(&self) -> bool {
        self.pooling.is_some() || self.activation.is_some() || self.is_normalised || self.selection.is_some()
    }

    /// Whether the answer has numbers by label.
    pub(crate) fn is_labelled(&self) -> bool {
        self.selection.is_none() && !self.labels.is_empty()
    }

    /// The name, datatype and shape of what becomes of `output`.
    ///
    /// # Errors
    ///
    /// Why the steps cannot be done to it.
    pub(crate) fn result_port(&self, name: &str, output: &TensorPort) -> Result<TensorPort, String> {
        let (datatype, mut shape) = (output.datatype(), output.axes().to_vec());
        let port = |element, shape| TensorPort::of(name.to_owned(), element, shape);
        if !self.is_numeric() && self.labels.is_empty() {
            return Ok(port(output.element, shape));
        }
        if output.element == ElementType::Bytes {
            return Err(format!("{} of the model is {datatype}, of which nothing can be computed", output.name));
        }
        if self.pooling.is_some() {
            if shape.len() != 3 {
                return Err(format!("pooling needs a vector of each token, and {} is {}", output.name, output.shown_shape()));
            }
            shape.remove(1);
        }
        let Some(last) = shape.last().copied() else {
            return Err(format!("{} is a single number", output.name));
        };
        if !self.labels.is_empty() && last.is_some_and(|last| last != self.labels.len()) {
            return Err(format!("there are {} labels, and {} is {}", self.labels.len(), output.name, output.shown_shape()));
        }
        match self.selection {
            Some(Selection::Column(column)) if last.is_some_and(|last| column >= last) => {
                return Err(format!("there is no element {column} in {}, which is {}", output.name, output.shown_shape()));
            }
            Some(_) => drop(shape.pop()),
            None => {}
        }
        Ok(port(self.result_element(output.element), shape))
    }

    fn result_element(&self, output: ElementType) -> ElementType {
        match self.selection {
            Some(Selection::Argmax) if self.labels.is_empty() => ElementType::Int64,
            Some(Selection::Argmax) => ElementType::Bytes,
            _ if !self.is_numeric() => output,
            _ if output == ElementType::Fp64 => ElementType::Fp64,
            _ => ElementType::Fp32,
        }
    }

    /// What becomes of a model's output; `tokens` has how many tokens each text has that are not filled up.
    ///
    /// # Errors
    ///
    /// The output does not have the shape that the model declares.
    pub(crate) fn apply(&self, name: &str, tensor: DecodedTensor, tokens: &[u32]) -> Result<DecodedTensor, AnswerDecodeError> {
        if !self.is_numeric() {
            return Ok(DecodedTensor { name: name.to_owned(), ..tensor });
        }
        let element = self.result_element(tensor.element);
        let values: Option<Vec<f64>> = (0..tensor.len()).map(|at| Some(tensor.number(at)?.as_f64())).collect();
        let shape: Vec<usize> = tensor.shape.iter().map(|length| usize::try_from(*length).unwrap_or(usize::MAX)).collect();
        let fault = |reason: &str| AnswerDecodeError::malformed(format!("output {}: {reason} in {shape:?}", tensor.name));
        let mut rows = Rows { values: values.ok_or_else(|| fault("texts"))?, shape: shape.clone() };
        if let Some(pooling) = self.pooling {
            rows = rows.pooled(pooling, tokens).ok_or_else(|| fault("no vector of each token"))?;
        }
        let width = rows.shape.last().copied().filter(|width| *width > 0).ok_or_else(|| fault("no last axis"))?;
        for row in rows.values.chunks_exact_mut(width) {
            match self.activation {
                Some(OutputActivation::Softmax) => softmax(row),
                Some(OutputActivation::Sigmoid) => row.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
                None => {}
            }
            if self.is_normalised {
                normalise(row);
            }
        }
        let data = match self.selection {
            None => numbers(element, rows.values),
            Some(selection) => {
                rows.shape.pop();
                let of_rows = rows.values.chunks_exact(width);
                match selection {
                    Selection::Column(column) if column < width => numbers(element, of_rows.map(|row| row[column])),
                    Selection::Column(_) => return Err(fault("no such element")),
                    Selection::Max => numbers(element, of_rows.map(|row| row[greatest(row)])),
                    Selection::Argmax if self.labels.is_empty() => {
                        let mut data = BytesMut::new();
                        of_rows.for_each(|row| data.put_u64_le(greatest(row) as u64));
                        TensorData::Numbers(ElementType::Int64, data.freeze())
                    }
                    Selection::Argmax => {
                        let label = |row: &[f64]| Some(Bytes::copy_from_slice(self.labels.get(greatest(row))?.as_bytes()));
                        let labels: Option<Vec<Bytes>> = of_rows.map(label).collect();
                        TensorData::Texts(labels.ok_or_else(|| fault("an element without a label"))?)
                    }
                }
            }
        };
        let shape: Vec<i64> = rows.shape.iter().map(|length| i64::try_from(*length).unwrap_or(i64::MAX)).collect();
        DecodedTensor::new(name.to_owned(), element, &shape, data)
    }
}

/// Numbers, the last axis first.
struct Rows {
    values: Vec<f64>,
    shape: Vec<usize>,
}

impl Rows {
    /// One vector of each text; `None` if the texts are not those that `tokens` counts.
    fn pooled(&self, pooling: Pooling, tokens: &[u32]) -> Option<Self> {
        let [texts, length, width] = self.shape[..] else { return None };
        let counts: Vec<usize> = tokens.iter().map(|count| *count as usize).collect();
        if counts.len() != texts || counts.iter().any(|count| *count == 0 || *count > length) || width == 0 {
            return None;
        }
        let mut values = Vec::with_capacity(texts * width);
        for (text, count) in self.values.chunks_exact(length * width).zip(counts) {
            let vectors = text.chunks_exact(width).take(count);
            match pooling {
                Pooling::Cls => values.extend_from_slice(&text[..width]),
                Pooling::Last => values.extend_from_slice(&text[(count - 1) * width..count * width]),
                Pooling::Max => {
                    values.extend((0..width).map(|at| vectors.clone().map(|v| v[at]).fold(f64::NEG_INFINITY, f64::max)))
                }
                #[expect(clippy::cast_precision_loss, reason = "a count of tokens")]
                Pooling::Mean => values.extend((0..width).map(|at| vectors.clone().map(|v| v[at]).sum::<f64>() / count as f64)),
            }
        }
        Some(Self { values, shape: vec![texts, width] })
    }
}

fn softmax(row: &mut [f64]) {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|x| *x = (*x - most).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= sum);
}

/// As PyTorch's `normalize`, which leaves a vector without length as it is.
fn normalise(row: &mut [f64]) {
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-12);
    row.iter_mut().for_each(|x| *x /= length);
}

/// The index of the greatest element, the first of equal ones, NaN before all others, as numpy has it.
fn greatest(row: &[f64]) -> usize {
    let mut best = 0;
    for (at, x) in row.iter().enumerate() {
        if row[best].is_nan() {
            break;
        }
        if *x > row[best] || x.is_nan() {
            best = at;
        }
    }
    best
}

fn numbers(element: ElementType, values: impl IntoIterator<Item = f64>) -> TensorData {
    TensorData::Numbers(element, float_bytes(element, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[i64], values: &[f32]) -> DecodedTensor {
        let data = values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>().into();
        DecodedTensor::new("out".into(), ElementType::Fp32, shape, TensorData::Numbers(ElementType::Fp32, data)).unwrap()
    }

    fn applied(steps: &Postprocessing, shape: &[i64], values: &[f32], tokens: &[u32]) -> Result<(Vec<u64>, Vec<f64>), String> {
        let made = steps.apply("y", tensor(shape, values), tokens).map_err(|error| error.to_string())?;
        assert_eq!(made.name, "y");
        Ok((made.shape.clone(), (0..made.len()).filter_map(|at| made.number(at)).map(|n| n.as_f64()).collect()))
    }

    #[test]
    fn tokens_that_fill_up_are_no_part_of_a_pooled_vector() {
        // two texts of at most three tokens, vectors of two; the second text has one token
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, -9.0, 7.0, 8.0, 99.0, 99.0, 99.0, 99.0];
        for (pooling, expected) in [
            (Pooling::Mean, [3.0, -1.0, 7.0, 8.0]),
            (Pooling::Max, [5.0, 4.0, 7.0, 8.0]),
            (Pooling::Cls, [1.0, 2.0, 7.0, 8.0]),
            (Pooling::Last, [5.0, -9.0, 7.0, 8.0]),
        ] {
            let steps = Postprocessing { pooling: Some(pooling), ..Postprocessing::default() };
            assert_eq!(applied(&steps, &[2, 3, 2], &values, &[3, 1]), Ok((vec![2, 2], expected.to_vec())), "{pooling:?}");
            for wrong in [&[3][..], &[4, 1], &[0, 1], &[3, 1, 1]] {
                assert!(applied(&steps, &[2, 3, 2], &values, wrong).is_err(), "{wrong:?}");
            }
        }
    }

    #[test]
    fn rows_become_probabilities_unit_vectors_columns_and_labels() {
        // numpy: softmax([1, 2, 3]) and its like
        let softmax = Postprocessing { activation: Some(OutputActivation::Softmax), ..Postprocessing::default() };
        let (shape, found) = applied(&softmax, &[1, 3], &[1.0, 2.0, 3.0], &[]).unwrap();
        let near = |found: &[f64], expected: &[f64]| found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-7);
        assert!(shape == [1, 3] && near(&found, &[0.090_030_573, 0.244_728_471, 0.665_240_956]), "{found:?}");
        let huge = applied(&softmax, &[1, 2], &[1e30, -1e30], &[]).unwrap().1;
        assert_eq!(huge, [1.0, 0.0]);
        let column = Postprocessing { selection: Some(Selection::Column(1)), ..softmax.clone() };
        let (shape, found) = applied(&column, &[2, 2], &[0.0, 0.0, 0.0, 3.0], &[]).unwrap();
        assert!(shape == [2] && near(&found, &[0.5, 0.952_574_127]), "{found:?}");
        let most = Postprocessing { selection: Some(Selection::Max), ..softmax };
        assert!(near(&applied(&most, &[1, 2], &[3.0, 0.0], &[]).unwrap().1, &[0.952_574_127]));
        let sigmoid = Postprocessing { activation: Some(OutputActivation::Sigmoid), ..Postprocessing::default() };
        assert!(near(&applied(&sigmoid, &[2], &[0.0, -800.0], &[]).unwrap().1, &[0.5, 0.0]));
        let unit = Postprocessing { is_normalised: true, ..Postprocessing::default() };
        assert!(near(&applied(&unit, &[2, 2], &[3.0, 4.0, 0.0, 0.0], &[]).unwrap().1, &[0.6, 0.8, 0.0, 0.0]));
        let index = Postprocessing { selection: Some(Selection::Argmax), ..Postprocessing::default() };
        let nan = f32::NAN;
        let found = applied(&index, &[4, 3], &[1.0, 5.0, 5.0, 0.0, nan, 9.0, 3.0, 2.0, 1.0, -1.0, -1.0, -0.5], &[]);
        assert_eq!(found, Ok((vec![4], vec![1.0, 1.0, 0.0, 2.0])));
        let label = Postprocessing { labels: vec!["cat".into(), "dog".into()], ..index };
        let made = label.apply("y", tensor(&[2, 2], &[0.1, 0.9, 0.8, 0.2]), &[]).unwrap();
        let TensorData::Texts(texts) = &made.data else { panic!("{made:?}") };
        assert_eq!((made.element, &texts[..]), (ElementType::Bytes, &[Bytes::from("dog"), Bytes::from("cat")][..]));
        assert!(label.apply("y", tensor(&[1, 3], &[0.0, 1.0, 2.0]), &[]).is_err(), "a third element has no label");
        assert!(applied(&column, &[2, 1], &[0.0, 1.0], &[]).is_err());
        assert!(applied(&unit, &[], &[1.0], &[]).is_err());
    }

    #[test]
    fn what_cannot_be_done_to_an_output_is_said_before_any_request() {
        let port = |datatype: &str, shape: &[Option<usize>]| TensorPort::new("out".into(), datatype, shape.to_vec()).unwrap();
        let of = |steps: &Postprocessing, port: &TensorPort| {
            steps.result_port("y", port).map(|made| format!("{} {} {}", made.name, made.datatype(), made.shown_shape()))
        };
        let none = Postprocessing::default();
        let pooled = Postprocessing { pooling: Some(Pooling::Mean), is_normalised: true, ..none.clone() };
        let select = |selection, labels: &[&str]| Postprocessing {
            selection: Some(selection),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            ..none.clone()
        };
        let labelled = Postprocessing { labels: vec!["a".into(), "b".into()], ..none.clone() };
        let (tokens, rows) = (port("FP16", &[None, None, Some(8)]), port("FP32", &[None, Some(2)]));
        assert_eq!(of(&none, &tokens), Ok("y FP16 [-1, -1, 8]".into()));
        assert_eq!(of(&none, &port("BYTES", &[None])), Ok("y BYTES [-1]".into()));
        assert_eq!(of(&pooled, &tokens), Ok("y FP32 [-1, 8]".into()));
        assert_eq!(of(&select(Selection::Column(1), &[]), &rows), Ok("y FP32 [-1]".into()));
        assert_eq!(of(&select(Selection::Max, &[]), &port("FP64", &[None, Some(2)])), Ok("y FP64 [-1]".into()));
        assert_eq!(of(&select(Selection::Argmax, &[]), &rows), Ok("y INT64 [-1]".into()));
        assert_eq!(of(&select(Selection::Argmax, &["a", "b"]), &rows), Ok("y BYTES [-1]".into()));
        assert_eq!(of(&labelled, &rows), Ok("y FP32 [-1, 2]".into()));
        for (steps, port, expected) in [
            (&pooled, &rows, "pooling needs a vector of each token, and out is [-1, 2]"),
            (&select(Selection::Column(2), &[]), &rows, "there is no element 2 in out, which is [-1, 2]"),
            (&select(Selection::Argmax, &["a"]), &rows, "there are 1 labels, and out is [-1, 2]"),
            (
                &select(Selection::Max, &[]),
                &port("BYTES", &[None]),
                "out of the model is BYTES, of which nothing can be computed",
            ),
            (&select(Selection::Max, &[]), &port("FP32", &[]), "out is a single number"),
        ] {
            assert_eq!(of(steps, port), Err(expected.to_owned()));
        }
        for (text, expected) in
            [("argmax", Some(Selection::Argmax)), ("max", Some(Selection::Max)), ("12", Some(Selection::Column(12)))]
        {
            assert_eq!(Selection::parse(text), expected);
        }
        assert!(Selection::parse("-1").is_none() && Selection::parse("first").is_none());
    }
}
