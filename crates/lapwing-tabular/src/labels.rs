//! The labels of a classifier: whole numbers or strings.

use bytes::Bytes;

use crate::attributes::{Attributes, Reason};
use crate::value::{Elements, Value};

/// One label per class.
#[derive(Clone, Debug)]
pub(crate) enum Labels {
    Ints(Vec<i64>),
    Texts(Vec<Bytes>),
}

/// The label of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// That of a class.
    Class(usize),
    /// 1 or 0, whatever the labels are, where those are whole numbers.
    Sign(bool),
}

impl Labels {
    /// Reads the labels of a node; strings win over whole numbers, as in ONNX Runtime.
    pub(crate) fn read(node: Attributes<'_>, texts: &str, ints: &str) -> Result<Self, Reason> {
        let given = node.strings(texts)?;
        if !given.is_empty() {
            return Ok(Self::Texts(given.iter().map(|text| Bytes::copy_from_slice(text)).collect()));
        }
        match node.ints(ints)? {
            [] => Err(format!("has neither {texts} nor {ints}")),
            given => Ok(Self::Ints(given.to_vec())),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Ints(labels) => labels.len(),
            Self::Texts(labels) => labels.len(),
        }
    }

    /// The labels of rows, as a vector.
    pub(crate) fn of_rows(&self, rows: impl Iterator<Item = Label>) -> Result<Value, Reason> {
        let missing = || "a row has no class".to_owned();
        let elements = match self {
            Self::Ints(labels) => {
                let label = |label: Label| match label {
                    Label::Class(class) => labels.get(class).copied().ok_or_else(missing),
                    Label::Sign(is_positive) => Ok(i64::from(is_positive)),
                };
                Elements::I64(rows.map(label).collect::<Result<_, _>>()?)
            }
            Self::Texts(labels) => {
                let label = |label: Label| match label {
                    Label::Class(class) => labels.get(class).cloned().ok_or_else(missing),
                    Label::Sign(is_positive) => labels.get(usize::from(is_positive)).cloned().ok_or_else(missing),
                };
                Elements::Text(rows.map(label).collect::<Result<_, _>>()?)
            }
        };
        Value::new(&[elements.len()], elements)
    }
}

/// The index of the largest score, the first if several are; 0 if none is comparable.
pub(crate) fn first_maximum(scores: &[f32]) -> usize {
    let mut best = 0;
    for (class, score) in scores.iter().enumerate().skip(1) {
        if *score > scores[best] {
            best = class;
        }
    }
    best
}
