//! Answers of another API as named tensors: where in the document each of them is, and of which output of a model it is made.

use bytes::Bytes;

use super::super::answer::FinishedAnswer;
use super::document::Document;
use super::element::ElementType;
use super::labelled::read_labelled;
use super::nested::{NestedFault, NestedTensor, read_encoded_vectors, read_values};
use super::port::TensorPort;
use super::postprocessing::Postprocessing;
use super::tensor::{DecodedTensor, TensorData};
use super::{AnswerDecodeError, content};
use crate::outputs::paths::ValuePath;

/// A tensor of a model, and where a document has it.
#[derive(Clone, Debug)]
pub struct MappedTensor {
    /// The name, datatype and shape that the model declares.
    pub port: TensorPort,
    /// Where in the document its values are.
    pub path: ValuePath,
    /// Texts that stand for numbers, each for its index.
    pub categories: Vec<String>,
}

impl MappedTensor {
    /// The tensor as the document has it, with the shape of its lists.
    ///
    /// # Errors
    ///
    /// [`NestedFault`]; the elements take at most `limit` bytes.
    pub fn read(&self, document: &Document, limit: usize) -> Result<NestedTensor, NestedFault> {
        read_values(document.root(), &self.path, self.port.element, &self.categories, limit)
    }
}

/// A field of an answer, and what makes it of a model's output.
#[derive(Clone, Debug)]
pub struct MappedOutput {
    /// Its name among the fields that are compared, and what it is.
    port: TensorPort,
    path: ValuePath,
    /// The model's output.
    output: String,
    steps: Postprocessing,
    /// Where the answer says which row of the request each of its rows is.
    order: Option<ValuePath>,
}

impl MappedOutput {
    /// The field `name` of an answer, at `path`, which `steps` make of the model's `output`. Its rows are at the indices that are at
    /// `order`, if they are not in the order of the request.
    ///
    /// # Errors
    ///
    /// Why the steps cannot be done to the output.
    pub fn new(
        name: &str,
        path: ValuePath,
        output: &TensorPort,
        steps: Postprocessing,
        order: Option<ValuePath>,
    ) -> Result<Self, String> {
        Ok(Self { port: steps.result_port(name, output)?, path, output: output.name.clone(), steps, order })
    }

    /// The field in an answer of the API, in the model's type. If its lists do not fit the model's shape it keeps theirs, which is then
    /// what differs.
    fn of_document(&self, document: &Document) -> Result<DecodedTensor, AnswerDecodeError> {
        let (root, element) = (document.root(), self.port.element);
        let malformed = |reason: &dyn std::fmt::Display| {
            AnswerDecodeError::malformed(format!("output {}: {} {reason}", self.port.name, self.path))
        };
        let read = if self.steps.is_labelled() {
            read_labelled(root, &self.path, &self.steps.labels, element)
        } else {
            // the document bounds the elements
            let read = read_values(root, &self.path, element, &[], usize::MAX);
            let encoded = |fault: NestedFault| match fault {
                NestedFault::Element { .. } if element.is_float() => read_encoded_vectors(root, &self.path, element).ok_or(fault),
                fault => Err(fault),
            };
            read.or_else(encoded)
        };
        let NestedTensor { shape, stored, data } = read.map_err(|fault| malformed(&fault))?;
        let shape = self.port.fit(&shape).unwrap_or(shape);
        let shape: Vec<i64> = shape.iter().map(|length| i64::try_from(*length).unwrap_or(i64::MAX)).collect();
        let data = TensorData::from_raw(stored, data)?;
        let tensor = DecodedTensor::new(self.port.name.clone(), element, &shape, data)?;
        let Some(order) = &self.order else { return Ok(tensor) };
        let fault = |reason: &dyn std::fmt::Display| AnswerDecodeError::malformed(format!("order: {order} {reason}"));
        let at = read_values(root, order, ElementType::Int64, &[], usize::MAX).map_err(|fault_| fault(&fault_))?;
        tensor.in_order(&at.data).ok_or_else(|| fault(&"does not have the index of each row once"))
    }

    /// The field in the tensors that a model answered; `None` if its output is not among them.
    fn of_tensors(&self, tensors: &[DecodedTensor], tokens: &[u32]) -> Option<Result<DecodedTensor, AnswerDecodeError>> {
        let tensor = tensors.iter().find(|tensor| tensor.name == self.output)?;
        Some(self.steps.apply(&self.port.name, tensor.clone(), tokens))
    }
}

/// The fields of an answer that are compared.
#[derive(Clone, Debug)]
pub struct OutputMapping(Vec<MappedOutput>);

impl OutputMapping {
    /// Of these fields.
    pub const fn new(outputs: Vec<MappedOutput>) -> Self {
        Self(outputs)
    }

    /// The names of the model's outputs of which they are made, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let is_first = |(at, output): &(usize, &MappedOutput)| self.0[..*at].iter().all(|other| other.output != output.output);
        self.0.iter().enumerate().filter(is_first).map(|(_, output)| output.output.as_str())
    }
}

/// The fields of an answer of the API, of at most `limit` bytes after decompression.
pub(crate) fn decode(
    answer: &FinishedAnswer<'_>,
    outputs: &OutputMapping,
    limit: usize,
) -> Result<Vec<DecodedTensor>, AnswerDecodeError> {
    let document = Document::parse(&content::body(answer, limit)?)?;
    outputs.0.iter().map(|output| output.of_document(&document)).collect()
}

/// The same fields of the tensors that the model answered, where `tokens` has how many tokens each text of the request has.
pub(crate) fn postprocess(
    tensors: &[DecodedTensor],
    outputs: &OutputMapping,
    tokens: &[u32],
) -> Result<Vec<DecodedTensor>, AnswerDecodeError> {
    outputs.0.iter().filter_map(|output| output.of_tensors(tensors, tokens)).collect()
}

impl DecodedTensor {
    /// The tensor with row `i` of its first axis at the `i`th of these little-endian INT64; `None` if they are not all rows, each once.
    fn in_order(self, indices: &Bytes) -> Option<Self> {
        let rows = usize::try_from(*self.shape.first()?).ok()?;
        let mut row_at = vec![None; rows];
        let indices = indices.as_chunks::<8>().0;
        for (row, index) in indices.iter().enumerate() {
            let place = row_at.get_mut(usize::try_from(i64::from_le_bytes(*index)).ok()?)?;
            if place.replace(row).is_some() {
                return None;
            }
        }
        let row_at: Option<Vec<usize>> = row_at.into_iter().collect();
        let row_at = row_at.filter(|at| at.len() == indices.len())?;
        let data = match self.data {
            TensorData::Numbers(element, data) => {
                let width = data.len().checked_div(rows).unwrap_or(0);
                let ordered: Vec<u8> = row_at.iter().flat_map(|row| data[row * width..(row + 1) * width].to_vec()).collect();
                TensorData::Numbers(element, ordered.into())
            }
            TensorData::Texts(texts) => {
                let width = texts.len().checked_div(rows).unwrap_or(0);
                TensorData::Texts(row_at.iter().flat_map(|row| texts[row * width..(row + 1) * width].to_vec()).collect())
            }
        };
        Some(Self { data, ..self })
    }
}
