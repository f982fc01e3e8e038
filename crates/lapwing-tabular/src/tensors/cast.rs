//! `Cast`, and `Cast`'s conversions between numbers, truth values and strings.

use bytes::Bytes;
use lapwing_onnx::messages::tensor_proto::DataType;

use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, required};
use crate::value::{Elements, Value, truncated};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cast {
    F32,
    F64,
    I64,
    I32,
    Bool,
    Text,
}

/// `Cast`.
pub(crate) fn cast(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let to = node.int("to")?.ok_or("has no type to cast to")?;
    Ok(Box::new(match i32::try_from(to).ok().and_then(|to| DataType::try_from(to).ok()) {
        Some(DataType::Float) => Cast::F32,
        Some(DataType::Double) => Cast::F64,
        Some(DataType::Int64) => Cast::I64,
        Some(DataType::Int32) => Cast::I32,
        Some(DataType::Bool) => Cast::Bool,
        Some(DataType::String) => Cast::Text,
        _ => return Err(format!("casts to the element type {to} of ONNX")),
    }))
}

impl Cast {
    fn numbers(self, numbers: impl Iterator<Item = f64>) -> Elements {
        match self {
            Self::F32 => Elements::F32(numbers.map(|x| x as f32).collect()),
            Self::F64 => Elements::F64(numbers.collect()),
            Self::I64 => Elements::I64(numbers.map(truncated).collect()),
            Self::I32 => Elements::I32(numbers.map(|x| i32::try_from(truncated(x)).unwrap_or(i32::MIN)).collect()),
            Self::Bool | Self::Text => Elements::Bool(numbers.map(|x| x != 0.0).collect()),
        }
    }

    fn integers(self, integers: impl Iterator<Item = i64>) -> Elements {
        match self {
            Self::F32 => Elements::F32(integers.map(|x| x as f32).collect()),
            Self::F64 => Elements::F64(integers.map(|x| x as f64).collect()),
            Self::I64 => Elements::I64(integers.collect()),
            Self::I32 => Elements::I32(integers.map(|x| x as i32).collect()),
            Self::Bool => Elements::Bool(integers.map(|x| x != 0).collect()),
            Self::Text => Elements::Text(integers.map(|x| Bytes::from(x.to_string())).collect()),
        }
    }
}

/// A number in a string; C's words for those that are not finite are taken.
fn parsed(text: &Bytes) -> Result<f64, Reason> {
    let fails = || format!("the string {:?} is no number", String::from_utf8_lossy(&text[..text.len().min(40)]));
    std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()).ok_or_else(fails)
}

impl Operator for Cast {
    fn run(&self, inputs: &[Option<&Value>], scratch: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let elements = match &value.elements {
            Elements::F32(_) | Elements::F64(_) if *self == Self::Text => {
                return Err("casts floating-point numbers to strings".into());
            }
            Elements::F32(items) => self.numbers(items.iter().map(|x| f64::from(*x))),
            Elements::F64(items) => self.numbers(items.iter().copied()),
            Elements::I64(items) => self.integers(items.iter().copied()),
            Elements::I32(items) => self.integers(items.iter().map(|x| i64::from(*x))),
            Elements::Bool(items) => self.integers(items.iter().map(|x| i64::from(*x))),
            Elements::Text(items) if *self == Self::Text => Elements::Text(items.clone()),
            Elements::Text(items) if scratch.is_trial => self.numbers(items.iter().map(|_| 0.0)),
            Elements::Text(items) if *self == Self::F32 => {
                // rounded once, from the text
                let single = |text: &Bytes| {
                    Ok(std::str::from_utf8(text).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(parsed(text)? as f32))
                };
                Elements::F32(items.iter().map(single).collect::<Result<_, Reason>>()?)
            }
            Elements::Text(items) if *self == Self::I64 => {
                let whole = |text: &Bytes| match std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()) {
                    Some(whole) => Ok(whole),
                    None => parsed(text).map(truncated),
                };
                Elements::I64(items.iter().map(whole).collect::<Result<_, Reason>>()?)
            }
            Elements::Text(items) => {
                let numbers: Vec<f64> = items.iter().map(parsed).collect::<Result<_, Reason>>()?;
                self.numbers(numbers.into_iter())
            }
        };
        Ok(vec![Value::new(&value.shape, elements)?])
    }
}
