//! Answers of another API as a model's named tensors: the inputs and outputs that the model declares, where in the document each of
//! them is, and how the lists of a document fit its shape.

use super::super::answer::FinishedAnswer;
use super::document::Document;
use super::element::ElementType;
use super::nested::{NestedFault, NestedTensor, read_numbers};
use super::tensor::{DecodedTensor, TensorData};
use super::{AnswerDecodeError, content};
use crate::outputs::paths::ValuePath;

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPort {
    /// Its name in the model.
    pub name: String,
    pub(crate) element: ElementType,
    /// Lengths of its axes; `None` where a request chooses.
    shape: Vec<Option<usize>>,
}

impl TensorPort {
    /// A port of this datatype, by the name that the Open Inference Protocol has for it; `None` if it has none.
    #[must_use]
    pub fn new(name: String, datatype: &str, shape: Vec<Option<usize>>) -> Option<Self> {
        Some(Self { name, element: ElementType::parse(datatype)?, shape })
    }

    /// The protocol's name of its datatype.
    #[must_use]
    pub fn datatype(&self) -> &'static str {
        self.element.name()
    }

    /// The lengths of the axes of a tensor with this many elements along its own, in the model's order. Axes of length 1 may be missing
    /// or too many: they are put where the model's shape has them, else before the others, as in a batch of one. `None` if the tensor
    /// does not fit.
    #[must_use]
    pub fn fit(&self, shape: &[usize]) -> Option<Vec<usize>> {
        let is_fit = |(want, got): (&Option<usize>, &usize)| want.is_none_or(|want| want == *got);
        if shape.len() == self.shape.len() {
            return self.shape.iter().zip(shape).all(is_fit).then(|| shape.to_vec());
        }
        let mut given = shape.iter().copied().filter(|length| *length != 1);
        let needed = self.shape.iter().filter(|length| **length != Some(1)).count();
        let mut missing = needed.checked_sub(given.clone().count())?;
        let axis = |wanted: &Option<usize>| match wanted {
            Some(1) => Some(1),
            None if missing > 0 => {
                missing -= 1;
                Some(1)
            }
            wanted => given.next().filter(|length| wanted.is_none_or(|wanted| wanted == *length)),
        };
        let fitted: Vec<usize> = self.shape.iter().map(axis).collect::<Option<_>>()?;
        (missing == 0 && given.next().is_none()).then_some(fitted)
    }

    /// Its shape as the protocol writes it: `[-1, 64]`.
    #[must_use]
    pub fn shown_shape(&self) -> String {
        let length = |length: &Option<usize>| length.map_or("-1".to_owned(), |length| length.to_string());
        format!("[{}]", self.shape.iter().map(length).collect::<Vec<_>>().join(", "))
    }
}

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
) -> Result<Vec<DecodedTensor>, AnswerDecodeError> {
    let document = Document::parse(&content::body(answer, limit)?)?;
    let tensor = |output: &MappedTensor| {
        let MappedTensor { port, path } = output;
        let fault = |fault: NestedFault| AnswerDecodeError::malformed(format!("output {}: {path} {fault}", port.name));
        // the document bounds the elements
        let NestedTensor { shape, stored, data } = output.read(&document, usize::MAX).map_err(fault)?;
        let shape = port.fit(&shape).unwrap_or(shape);
        let shape: Vec<i64> = shape.iter().map(|length| i64::try_from(*length).unwrap_or(i64::MAX)).collect();
        DecodedTensor::new(port.name.clone(), port.element, &shape, TensorData::Numbers(stored, data))
    };
    outputs.0.iter().map(tensor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_of_length_one_may_be_left_out() {
        let fit =
            |port: &[Option<usize>], shape: &[usize]| TensorPort::new("x".into(), "FP32", port.to_vec()).unwrap().fit(shape);
        let rows = [None, Some(3)];
        for (port, given, expected) in [
            (&rows[..], &[5, 3][..], Some(&[5, 3][..])),
            (&rows, &[3], Some(&[1, 3])),
            (&rows, &[1, 5, 3], Some(&[5, 3])),
            (&rows, &[5, 3, 1], Some(&[5, 3])),
            (&rows, &[5, 4], None),
            (&rows, &[5], None),
            (&rows, &[2, 5, 3], None),
            (&rows, &[], None),
            (&[None, Some(1)], &[5], Some(&[5, 1])),
            (&[None, Some(1)], &[], Some(&[1, 1])),
            (&[None, None], &[5], Some(&[1, 5])),
            (&[None], &[5, 1], Some(&[5])),
            (&[], &[], Some(&[])),
            (&[], &[1, 1], Some(&[])),
            (&[], &[2], None),
        ] {
            assert_eq!(fit(port, given).as_deref(), expected, "{port:?} {given:?}");
        }
    }
}
