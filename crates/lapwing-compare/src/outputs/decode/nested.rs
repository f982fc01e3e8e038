//! Nested lists of a document as a tensor: its shape is that of the lists, its elements are their values in order.
//!
//! Time is linear in the document; memory is bounded by the caller's limit. No message has a value of the document in it: they go to logs.

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::document::{DocumentValue, Node};
use super::element::{ElementType, Number, float_bytes};
use super::embeddings::floats;
use super::oip_json::{write, write_number};
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
    /// Numbers by label that are not one of each label.
    #[error("does not have each label once, with a number{0}")]
    Labels(ListPlace),
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

/// The values at `path` as a tensor of this type, whose elements take at most `limit` bytes. `null` in a float tensor is NaN, because
/// that is how servers write it; `true` and `false` are 1 and 0; `2.0` is the integer 2. A text is its index in `categories`, if there
/// are any; in a tensor of texts it is itself, after its length in four bytes.
///
/// # Errors
///
/// [`NestedFault`]
pub(crate) fn read_values(
    root: DocumentValue<'_>,
    path: &ValuePath,
    element: ElementType,
    categories: &[String],
    limit: usize,
) -> Result<NestedTensor, NestedFault> {
    let stored = if matches!(element, ElementType::Fp16 | ElementType::Bf16) { ElementType::Fp32 } else { element };
    let mut data = BytesMut::new();
    let shape = walk(root, path, |value, at| {
        let size = stored.bytes().unwrap_or(4 + value.text().map_or(0, str::len));
        if data.len().saturating_add(size) > limit {
            return Err(NestedFault::TooLarge(limit));
        }
        let is_known = categories.is_empty() || value.text().is_none();
        let wanted = if is_known { element.name() } else { "known category" };
        let refused = || NestedFault::Element { at: at.clone(), found: kind_of(value), wanted };
        write_value(value, stored, categories, &mut data).ok_or_else(refused)
    })?;
    Ok(NestedTensor { shape, stored, data: data.freeze() })
}

/// Appends a value; `None` if it is none of the type.
fn write_value(value: DocumentValue<'_>, element: ElementType, categories: &[String], data: &mut BytesMut) -> Option<()> {
    match (value.text(), element) {
        (Some(text), ElementType::Bytes) => {
            data.put_u32_le(u32::try_from(text.len()).ok()?);
            data.extend_from_slice(text.as_bytes());
            Some(())
        }
        (Some(text), _) => {
            let code = categories.iter().position(|own| own == text)?;
            write_number(Number::Integer(i128::try_from(code).ok()?), element, data)
        }
        (None, _) if overflows(value, element) => None,
        (None, _) => write(value, element, data).or_else(|| write_number(whole(value)?, element, data)),
    }
}

/// The integer that a number with a decimal point is, as `2.0`, where doubles are exact.
#[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
fn whole(value: DocumentValue<'_>) -> Option<Number> {
    let Node::Float(number) = value.node() else { return None };
    let is_exact = number.fract() == 0.0 && number.abs() <= (1_u64 << 53) as f64;
    is_exact.then_some(Number::Integer(number as i128))
}

/// The vectors at `path` that are texts: base64 of little-endian single floats, as OpenAI's clients ask for; `None` if they are not, or
/// not all as long.
pub(crate) fn read_encoded_vectors(root: DocumentValue<'_>, path: &ValuePath, element: ElementType) -> Option<NestedTensor> {
    let (mut shape, texts) = read_texts(root, path).ok()?;
    let vectors: Option<Vec<Vec<f64>>> = texts.into_iter().map(floats).collect();
    let vectors = vectors?;
    let width = vectors.first()?.len();
    if vectors.iter().any(|vector| vector.len() != width) {
        return None;
    }
    shape.push(width);
    let stored = if element == ElementType::Fp64 { element } else { ElementType::Fp32 };
    Some(NestedTensor { shape, stored, data: float_bytes(stored, vectors.into_iter().flatten()) })
}

/// Whether there is nothing at `path`, or `null`, or this text, number, `true` or `false`.
pub fn is_absent_or(root: DocumentValue<'_>, path: &ValuePath, text: &str) -> bool {
    let is_it = |value: DocumentValue<'_>| match value.node() {
        Node::Null => true,
        Node::Bool(is_true) => text == if is_true { "true" } else { "false" },
        Node::Text { .. } => value.text() == Some(text),
        _ => value.number().is_some_and(|number| text.trim().parse() == Ok(number.as_f64())),
    };
    let mut is_met = true;
    let walked = walk(root, path, |value, _| {
        is_met &= is_it(value);
        Ok(())
    });
    match walked {
        Ok(shape) => is_met && shape.is_empty(),
        Err(NestedFault::Missing(_)) => is_met,
        Err(_) => false,
    }
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
pub(crate) fn walk<'d>(
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
        let read = read_values(document.root(), &path, element, &[], 64).map_err(|fault| fault.to_string())?;
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
            ("[1]", "$", "BYTES", "has a whole number at [0], which is no BYTES"),
            ("[9007199254740994.0]", "$", "INT64", "has a number at [0], which is no INT64"),
            (&format!("[\"{}\"]", "a".repeat(61)), "$", "BYTES", "takes more than 64 bytes"),
        ] {
            assert_eq!(read(document, path, element), Err(expected.to_owned()), "{document} {path}");
        }
        let deep = |depth| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(read(&deep(16), "$", "FP32").unwrap().0, [1; 16]);
        assert_eq!(read(&deep(17), "$", "FP32"), Err("has more than 16 lists in one another".to_owned()));
    }

    #[test]
    fn texts_are_elements_codes_and_vectors() {
        let of = |document: &str, element: &str, categories: &[&str]| {
            let document = Document::parse(document.as_bytes()).unwrap();
            let categories: Vec<String> = categories.iter().map(|one| (*one).to_owned()).collect();
            let (path, element) = (ValuePath::parse("$").unwrap(), ElementType::parse(element).unwrap());
            let read = read_values(document.root(), &path, element, &categories, 64);
            read.map(|read| (read.shape, read.data.to_vec())).map_err(|fault| fault.to_string())
        };
        assert_eq!(of(r#"["ab", ""]"#, "BYTES", &[]), Ok((vec![2], b"\x02\0\0\0ab\0\0\0\0".to_vec())));
        assert_eq!(of(r#"["de", "at", 7]"#, "UINT8", &["at", "de"]), Ok((vec![3], vec![1, 0, 7])));
        assert_eq!(of("3.0", "UINT8", &[]), Ok((vec![], vec![3])));
        assert_eq!(of(r#"["fr"]"#, "FP32", &["at"]), Err("has a text at [0], which is no known category".to_owned()));
        let vectors = |document: &str| {
            let document = Document::parse(document.as_bytes()).unwrap();
            let read = read_encoded_vectors(document.root(), &ValuePath::parse("$").unwrap(), ElementType::Fp32)?;
            Some((read.shape, (0..read.data.len() / 4).map(|at| read.stored.read(&read.data, at).as_f64()).collect::<Vec<_>>()))
        };
        // base64.b64encode(numpy.array([1, -2], "<f4")), numpy.array([0.5, 0], "<f4")
        assert_eq!(vectors(r#"["AACAPwAAAMA=", "AAAAPwAAAAA="]"#), Some((vec![2, 2], vec![1.0, -2.0, 0.5, 0.0])));
        for wrong in [r#"["AACAPwAAAMA=", "AACAPw=="]"#, r#"["hello"]"#, "[1]", "[]"] {
            assert_eq!(vectors(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_parameter_is_absent_or_as_expected() {
        let is = |document: &str, text: &str| {
            let document = Document::parse(document.as_bytes()).unwrap();
            is_absent_or(document.root(), &ValuePath::parse("$.p").unwrap(), text)
        };
        for (document, text) in [
            ("{}", "1"),
            ("[]", "1"),
            (r#"{"p": null}"#, "1"),
            (r#"{"p": 1}"#, "1"),
            (r#"{"p": 1.0}"#, "1"),
            (r#"{"p": true}"#, "true"),
            (r#"{"p": "float"}"#, "float"),
        ] {
            assert!(is(document, text), "{document}");
        }
        for (document, text) in [
            (r#"{"p": 2}"#, "1"),
            (r#"{"p": "1.0"}"#, "1"),
            (r#"{"p": false}"#, "true"),
            (r#"{"p": [1]}"#, "1"),
            (r#"{"p": {}}"#, "1"),
        ] {
            assert!(!is(document, text), "{document}");
        }
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
