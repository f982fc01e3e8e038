//! Nested lists of a document as a tensor: its shape is that of the lists, its elements are their values in order.
//!
//! Time is linear in the document; memory is bounded by the caller's limit. No message has a value of the document in it: they go to logs.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use super::document::{DocumentValue, Node};
use super::element::ElementType;
use super::oip_json::write;
use super::tensor::MAX_DIMENSIONS;
use crate::outputs::paths::{ValuePath, ValueStep};

/// Why a value of a document is no tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NestedFault {
    /// A member or element of the path does not exist.
    #[error("leads to nothing{0}")]
    Missing(ListPlace),
    /// The lists of one axis have different lengths.
    #[error("is ragged{at}: {found} elements where the first such list has {first}")]
    Ragged {
        /// Which list.
        at: ListPlace,
        /// Its elements.
        found: usize,
        /// The elements of the first list of this axis.
        first: usize,
    },
    /// A list where others have a value, or a value where others have a list.
    #[error("is ragged{0}: lists and single values stand side by side")]
    Mixed(ListPlace),
    /// More axes than a tensor may have.
    #[error("has more than {MAX_DIMENSIONS} lists in one another")]
    Deep,
    /// A value is none of the datatype.
    #[error("has {found}{at}, which is no {wanted}")]
    Element {
        /// Which value.
        at: ListPlace,
        /// What it is.
        found: &'static str,
        /// The datatype that it should have.
        wanted: &'static str,
    },
    /// The elements take more than the limit.
    #[error("takes more than {0} bytes")]
    TooLarge(usize),
}

/// Where in the lists; prints as ` at [3, 1]`, or as nothing outside of any list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPlace(SmallVec<[usize; 4]>);

impl std::fmt::Display for ListPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " at {:?}", self.0.as_slice()) }
    }
}

/// The elements of a tensor and the lengths of its axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedTensor {
    pub shape: Vec<usize>,
    /// The type of `data`: wider than the tensor's own where that is a half.
    pub(crate) stored: ElementType,
    /// Little-endian.
    pub data: Bytes,
}

/// The numbers at `path` as a tensor of this type, whose elements take at most `limit` bytes. `null` in a float tensor is NaN, because
/// that is how servers write it; `true` and `false` are 1 and 0.
///
/// # Errors
///
/// [`NestedFault`]
pub(crate) fn read_numbers(
    root: DocumentValue<'_>,
    path: &ValuePath,
    element: ElementType,
    limit: usize,
) -> Result<NestedTensor, NestedFault> {
    let stored = if matches!(element, ElementType::Fp16 | ElementType::Bf16) { ElementType::Fp32 } else { element };
    let (mut data, size) = (BytesMut::new(), stored.bytes().unwrap_or(1));
    let shape = walk(root, path, |value, at| {
        if data.len() + size > limit {
            return Err(NestedFault::TooLarge(limit));
        }
        let is_written = !overflows(value, stored) && write(value, stored, &mut data).is_some();
        let refused = || NestedFault::Element { at: at.clone(), found: kind_of(value), wanted: element.name() };
        if is_written { Ok(()) } else { Err(refused()) }
    })?;
    Ok(NestedTensor { shape, stored, data: data.freeze() })
}

/// The texts at `path`, and the lengths of the lists in which they are.
///
/// # Errors
///
/// [`NestedFault`]
pub fn read_texts<'d>(root: DocumentValue<'d>, path: &ValuePath) -> Result<(Vec<usize>, Vec<&'d str>), NestedFault> {
    let mut texts = Vec::new();
    let shape = walk(root, path, |value, at| {
        let refused = || NestedFault::Element { at: at.clone(), found: kind_of(value), wanted: "text" };
        texts.push(value.text().ok_or_else(refused)?);
        Ok(())
    })?;
    Ok((shape, texts))
}

/// Calls `leaf` with each value below the lists at `path`, in order. Returns the lengths of the lists, the outermost first.
fn walk<'d>(
    root: DocumentValue<'d>,
    path: &ValuePath,
    leaf: impl FnMut(DocumentValue<'d>, &ListPlace) -> Result<(), NestedFault>,
) -> Result<Vec<usize>, NestedFault> {
    let mut walk = Walk { shape: SmallVec::new(), has_leaves: false, at: ListPlace::default(), leaf };
    walk.visit(root, path.steps())?;
    Ok(walk.shape.to_vec())
}

/// A finite number that is too great for the type.
#[expect(clippy::cast_possible_truncation, reason = "this is what is asked")]
fn overflows(value: DocumentValue<'_>, element: ElementType) -> bool {
    let of = |number: f64| number.is_finite() && !(number as f32).is_finite();
    element == ElementType::Fp32 && value.number().is_some_and(|number| of(number.as_f64()))
}

fn kind_of(value: DocumentValue<'_>) -> &'static str {
    match value.node() {
        Node::Null => "null",
        Node::Bool(_) => "a boolean",
        Node::Unsigned(_) | Node::Signed(_) => "a whole number",
        Node::Float(_) => "a number",
        Node::Text { .. } => "a text",
        Node::Array { .. } => "a list",
        Node::Object { .. } => "an object",
    }
}

struct Walk<F> {
    /// The length of each axis that was met.
    shape: SmallVec<[usize; 4]>,
    /// Whether a value was met below the last axis of `shape`.
    has_leaves: bool,
    at: ListPlace,
    leaf: F,
}

impl<'d, F: FnMut(DocumentValue<'d>, &ListPlace) -> Result<(), NestedFault>> Walk<F> {
    /// A document nests 128 values at most, and a path has 30 steps.
    fn visit(&mut self, value: DocumentValue<'d>, steps: &[ValueStep]) -> Result<(), NestedFault> {
        let missing = || NestedFault::Missing(self.at.clone());
        match steps.split_first() {
            Some((ValueStep::Key(key), rest)) => {
                let member = value.get(key).ok_or_else(missing)?;
                self.visit(member, rest)
            }
            Some((ValueStep::Element(index), rest)) => {
                let element = value.elements().and_then(|mut elements| elements.nth(*index)).ok_or_else(missing)?;
                self.visit(element, rest)
            }
            Some((ValueStep::EachElement, rest)) => {
                let elements = value.elements().ok_or_else(missing)?;
                self.axis(elements, rest)
            }
            None => match value.elements() {
                Some(elements) => self.axis(elements, &[]),
                None => self.element(value),
            },
        }
    }

    fn axis(
        &mut self,
        elements: impl Iterator<Item = DocumentValue<'d>> + Clone,
        steps: &[ValueStep],
    ) -> Result<(), NestedFault> {
        let (axis, found) = (self.at.0.len(), elements.clone().count());
        match self.shape.get(axis) {
            Some(first) if *first == found => {}
            Some(first) => return Err(NestedFault::Ragged { at: self.at.clone(), found, first: *first }),
            None if self.has_leaves => return Err(NestedFault::Mixed(self.at.clone())),
            None if axis == MAX_DIMENSIONS => return Err(NestedFault::Deep),
            None => self.shape.push(found),
        }
        for (index, element) in elements.enumerate() {
            self.at.0.push(index);
            self.visit(element, steps)?;
            self.at.0.pop();
        }
        Ok(())
    }

    fn element(&mut self, value: DocumentValue<'d>) -> Result<(), NestedFault> {
        if self.at.0.len() != self.shape.len() {
            return Err(NestedFault::Mixed(self.at.clone()));
        }
        self.has_leaves = true;
        (self.leaf)(value, &self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Document;
    use super::*;

    fn read(document: &str, path: &str, element: &str) -> Result<(Vec<usize>, Vec<f64>), String> {
        let document = Document::parse(document.as_bytes()).unwrap();
        let (path, element) = (ValuePath::parse(path).unwrap(), ElementType::parse(element).unwrap());
        let read = read_numbers(document.root(), &path, element, 64).map_err(|fault| fault.to_string())?;
        let count = read.data.len() / read.stored.bytes().unwrap();
        Ok((read.shape, (0..count).map(|index| read.stored.read(&read.data, index).as_f64()).collect()))
    }

    #[test]
    fn the_shape_is_that_of_the_lists() {
        for (document, path, shape, numbers) in [
            (r#"{"x": [[1, 2.5], [3, -4]]}"#, "$.x", &[2, 2][..], &[1.0, 2.5, 3.0, -4.0][..]),
            ("7", "$", &[], &[7.0]),
            ("[]", "$", &[0], &[]),
            ("[[], []]", "$", &[2, 0], &[]),
            (r#"{"d": [{"e": [1, 2]}, {"e": [3, 4]}]}"#, "$.d[].e", &[2, 2], &[1.0, 2.0, 3.0, 4.0]),
            (r#"{"d": [{"e": [1, 2]}, {"e": [3, 4]}]}"#, "$.d[1].e", &[2], &[3.0, 4.0]),
            (r#"[{"p": true}, {"p": false}]"#, "$[].p", &[2], &[1.0, 0.0]),
        ] {
            assert_eq!(read(document, path, "FP32"), Ok((shape.to_vec(), numbers.to_vec())), "{document} {path}");
        }
        assert!(read("[null]", "$", "FP64").unwrap().1[0].is_nan());
        assert_eq!(read("[-9007199254740993]", "$", "INT64").unwrap().0, [1]);
    }

    #[test]
    fn what_is_no_tensor_is_named_without_its_values() {
        for (document, path, element, expected) in [
            ("{}", "$.x", "FP32", "leads to nothing"),
            (r#"[{"e": 1}, {}]"#, "$[].e", "FP32", "leads to nothing at [1]"),
            ("5", "$[]", "FP32", "leads to nothing"),
            ("[[1, 2], [3]]", "$", "FP32", "is ragged at [1]: 1 elements where the first such list has 2"),
            ("[1, [2]]", "$", "FP32", "is ragged at [1]: lists and single values stand side by side"),
            ("[[1], 2]", "$", "FP32", "is ragged at [1]: lists and single values stand side by side"),
            ("[[[]], [1]]", "$", "FP32", "is ragged at [1, 0]: lists and single values stand side by side"),
            (r#"[["NaN"]]"#, "$", "FP32", "has a text at [0, 0], which is no FP32"),
            ("[1e39]", "$", "FP32", "has a number at [0], which is no FP32"),
            ("[99999999999999999999999999999999999999999]", "$", "FP32", "has a number at [0], which is no FP32"),
            ("[0, 1.5]", "$", "INT64", "has a number at [1], which is no INT64"),
            ("[256]", "$", "UINT8", "has a whole number at [0], which is no UINT8"),
            ("[null]", "$", "INT32", "has null at [0], which is no INT32"),
            (r#"{"x": {"secret": 1}}"#, "$.x", "FP32", "has an object, which is no FP32"),
            ("[1,2,3,4,5,6,7,8,9]", "$", "FP64", "takes more than 64 bytes"),
        ] {
            assert_eq!(read(document, path, element), Err(expected.to_owned()), "{document} {path}");
        }
        let deep = |depth| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(read(&deep(16), "$", "FP32").unwrap().0, [1; 16]);
        assert_eq!(read(&deep(17), "$", "FP32"), Err("has more than 16 lists in one another".to_owned()));
    }

    #[test]
    fn texts_stand_in_lists_or_alone() {
        let texts = |document: &str| {
            let document = Document::parse(document.as_bytes()).unwrap();
            let read = read_texts(document.root(), &ValuePath::parse("$").unwrap());
            read.map(|(shape, texts)| (shape, texts.join("|"))).map_err(|fault| fault.to_string())
        };
        assert_eq!(texts("\"a\""), Ok((vec![], "a".to_owned())));
        assert_eq!(texts(r#"["a", "", "b"]"#), Ok((vec![3], "a||b".to_owned())));
        assert_eq!(texts("[1]"), Err("has a whole number at [0], which is no text".to_owned()));
    }
}
