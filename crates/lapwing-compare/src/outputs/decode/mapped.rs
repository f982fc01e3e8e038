//! Answers of another API as a model's named tensors: the configuration says where in the document each of them is.

use super::super::answer::FinishedAnswer;
use super::document::Document;
use super::nested::{NestedFault, NestedTensor, read_numbers};
use super::port::TensorPort;
use super::tensor::{DecodedTensor, TensorData};
use super::{DecodeError, content};
use crate::outputs::paths::ValuePath;

/// A tensor of a model, and where a document has it.
#[derive(Clone, Debug)]
pub struct MappedTensor {
    /// The name, datatype and shape that the model declares.
    pub port: TensorPort,
    /// Where in the document its values are.
    pub path: ValuePath,
}

impl MappedTensor {
    /// The tensor as the document has it, with the shape of its lists.
    ///
    /// # Errors
    ///
    /// [`NestedFault`]; the elements take at most `limit` bytes.
    pub fn read(&self, document: &Document, limit: usize) -> Result<NestedTensor, NestedFault> {
        read_numbers(document.root(), &self.path, self.port.element, limit)
    }
}

/// Where an answer has the outputs of a model.
#[derive(Clone, Debug)]
pub struct OutputMapping(Vec<MappedTensor>);

impl OutputMapping {
    /// Of these outputs.
    pub const fn new(outputs: Vec<MappedTensor>) -> Self {
        Self(outputs)
    }

    /// The names of the outputs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|output| output.port.name.as_str())
    }
}

/// The outputs in an answer of at most `limit` bytes after decompression, in the model's types. One whose lists do not fit the model's
/// shape keeps theirs, which is then what differs.
pub(crate) fn decode(
    answer: &FinishedAnswer<'_>,
    outputs: &OutputMapping,
    limit: usize,
) -> Result<Vec<DecodedTensor>, DecodeError> {
    let document = Document::parse(&content::body(answer, limit)?)?;
    let tensor = |output: &MappedTensor| {
        let MappedTensor { port, path } = output;
        let fault = |fault: NestedFault| DecodeError::malformed(format!("output {}: {path} {fault}", port.name));
        // the document bounds the elements
        let NestedTensor { shape, stored, data } = output.read(&document, usize::MAX).map_err(fault)?;
        let shape = port.fit(&shape).unwrap_or(shape);
        let shape: Vec<i64> = shape.iter().map(|length| i64::try_from(*length).unwrap_or(i64::MAX)).collect();
        DecodedTensor::new(port.name.clone(), port.element, &shape, TensorData::Numbers(stored, data))
    };
    outputs.0.iter().map(tensor).collect()
}
