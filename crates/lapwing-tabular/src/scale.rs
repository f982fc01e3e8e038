//! What prepares numeric columns: `Scaler`, `Imputer`, `Normalizer`, `Binarizer`.

use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, required};
use crate::value::{Elements, Value};

/// `(x - offset) * scale`, for each column or for all.
#[derive(Debug)]
struct Scaler {
    offsets: Vec<f32>,
    scales: Vec<f32>,
}

/// `Scaler`.
pub(crate) fn scaler(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let (offsets, scales) = (node.floats("offset")?.to_vec(), node.floats("scale")?.to_vec());
    if scales.is_empty() || offsets.len() != scales.len() {
        return Err(format!("has {} offsets and {} scales", offsets.len(), scales.len()));
    }
    Ok(Box::new(Scaler { offsets, scales }))
}

/// The number of parameters that a row of `width` columns takes: one each, or one for all.
fn per_column(parameters: usize, width: usize) -> Result<usize, Reason> {
    if parameters == width || parameters == 1 {
        Ok(parameters)
    } else {
        Err(format!("has parameters for {parameters} columns, a row has {width}"))
    }
}

impl Operator for Scaler {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let (_, width) = value.rows_and_columns()?;
        let count = per_column(self.scales.len(), width)?;
        let parameters = self.offsets.iter().zip(&self.scales).take(count).cycle();
        let scaled: Vec<f32> = if let Elements::F64(items) = &value.elements {
            let scaled = |(x, (offset, scale)): (&f64, (&f32, &f32))| ((x - f64::from(*offset)) * f64::from(*scale)) as f32;
            items.iter().zip(parameters).map(scaled).collect()
        } else {
            let items = value.to_f32()?;
            items.iter().zip(parameters).map(|(x, (offset, scale))| (x - offset) * scale).collect()
        };
        Ok(vec![Value::new(&value.shape, Elements::F32(scaled))?])
    }
}

/// Replaces one value, or what is missing, by another.
#[derive(Debug)]
enum Imputer {
    Floats { replaced: f32, imputed: Vec<f32> },
    Ints { replaced: i64, imputed: Vec<i64> },
}

/// `Imputer`.
pub(crate) fn imputer(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let (floats, ints) = (node.floats("imputed_value_floats")?.to_vec(), node.ints("imputed_value_int64s")?.to_vec());
    match (floats.is_empty(), ints.is_empty()) {
        (false, true) => {
            let replaced = node.float("replaced_value_float")?.unwrap_or(0.0);
            Ok(Box::new(Imputer::Floats { replaced, imputed: floats }))
        }
        (true, false) => {
            let replaced = node.int("replaced_value_int64")?.unwrap_or(0);
            Ok(Box::new(Imputer::Ints { replaced, imputed: ints }))
        }
        _ => Err("has to have imputed_value_floats or imputed_value_int64s, and not both".into()),
    }
}

/// The items, with those that `is_replaced` says by the parameter of their column; the first where there is not one each.
fn imputed<T: Copy>(items: &[T], width: usize, imputed: &[T], is_replaced: impl Fn(T) -> bool) -> Vec<T> {
    let parameters = if imputed.len() == width { imputed } else { &imputed[..1] };
    let pairs = items.iter().zip(parameters.iter().cycle());
    pairs.map(|(item, other)| if is_replaced(*item) { *other } else { *item }).collect()
}

impl Operator for Imputer {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let (_, width) = value.rows_and_columns()?;
        let elements = match (self, &value.elements) {
            (Self::Floats { replaced, imputed: by }, Elements::F32(items)) => {
                Elements::F32(imputed(items, width, by, |x| x == *replaced || (x.is_nan() && replaced.is_nan())))
            }
            (Self::Ints { replaced, imputed: by }, Elements::I64(items)) => {
                Elements::I64(imputed(items, width, by, |x| x == *replaced))
            }
            (_, other) => return Err(format!("imputes {} by values of another type", other.datatype().name())),
        };
        Ok(vec![Value::new(&value.shape, elements)?])
    }
}

/// Divides a row by its norm.
#[derive(Clone, Copy, Debug)]
enum Normalizer {
    Maximum,
    L1,
    L2,
}

/// `Normalizer`.
pub(crate) fn normalizer(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(match node.word("norm", "MAX")? {
        "MAX" => Normalizer::Maximum,
        "L1" => Normalizer::L1,
        "L2" => Normalizer::L2,
        other => return Err(format!("norm {other:?} is unknown")),
    }))
}

impl Operator for Normalizer {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let (_, width) = value.rows_and_columns()?;
        let mut items = value.to_f32()?.into_owned();
        for row in items.chunks_exact_mut(width.max(1)) {
            let norm = match self {
                Self::Maximum => row.iter().fold(f32::MIN, |most, x| if *x > most { *x } else { most }),
                Self::L1 => row.iter().map(|x| x.abs()).sum(),
                Self::L2 => row.iter().map(|x| x * x).sum(),
            };
            if norm == 0.0 {
                continue;
            }
            row.iter_mut().for_each(|x| match self {
                Self::Maximum | Self::L1 => *x /= norm,
                Self::L2 => *x = if *x < 0.0 { -(*x * *x / norm).sqrt() } else { (*x * *x / norm).sqrt() },
            });
        }
        Ok(vec![Value::new(&value.shape, Elements::F32(items))?])
    }
}

/// 1 above a threshold, else 0.
#[derive(Debug)]
struct Binarizer(f32);

/// `Binarizer`.
pub(crate) fn binarizer(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(Binarizer(node.float("threshold")?.unwrap_or(0.0))))
}

impl Operator for Binarizer {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let items = value.f32s()?;
        if let Some(at) = items.iter().position(|x| x.is_nan()) {
            return Err(format!("element {at} is NaN, which is neither above nor below the threshold"));
        }
        let binary = items.iter().map(|x| f32::from(u8::from(*x > self.0))).collect();
        Ok(vec![Value::new(&value.shape, Elements::F32(binary))?])
    }
}
