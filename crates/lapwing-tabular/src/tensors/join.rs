//! `Concat`, `Split`, `Constant`, `ConstantOfShape`.

use super::axes::{around, axis};
use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, TabularCost, moved, required};
use crate::value::{Elements, Value, count, from_proto, map_each};

#[derive(Debug)]
struct Concat(i64);

/// `Concat`.
pub(crate) fn concat(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(Concat(node.int("axis")?.ok_or("has no axis")?)))
}

/// Checks that parts, which may have no elements, are not more than elements may be.
fn check_parts(parts: usize, outer: usize) -> Result<(), Reason> {
    count(&[parts, outer]).map(drop).map_err(|_| format!("has {parts} parts for each of {outer} rows"))
}

/// The items of several values side by side: for each run of outer axes, the rows of all.
fn joined<T: Clone>(parts: &[(&[T], usize)], outer: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(parts.iter().map(|(items, _)| items.len()).sum());
    for at in 0..outer {
        for (items, length) in parts {
            out.extend_from_slice(&items[at * length..(at + 1) * length]);
        }
    }
    out
}

impl Operator for Concat {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let first = required(inputs, 0)?;
        let axis = axis(self.0, first.shape.len())?;
        let mut shape = first.shape.clone();
        shape[axis] = 0;
        let mut values = Vec::with_capacity(inputs.len());
        for at in 0..inputs.len() {
            let value = required(inputs, at)?;
            let is_alike = value.shape.len() == shape.len() && (0..shape.len()).all(|i| i == axis || shape[i] == value.shape[i]);
            if !is_alike {
                return Err(format!(
                    "input {at} of shape {:?} does not go with {:?} along axis {axis}",
                    value.shape, first.shape
                ));
            }
            shape[axis] += value.shape[axis];
            values.push(value);
        }
        count(&shape)?;
        let outer = shape[..axis].iter().product();
        check_parts(values.len(), outer)?;
        macro_rules! parts {
            ($kind:ident) => {{
                let mut parts = Vec::with_capacity(values.len());
                for value in &values {
                    let Elements::$kind(items) = &value.elements else {
                        let (one, other) = (first.elements.datatype(), value.elements.datatype());
                        return Err(format!("joins {} and {}", one.name(), other.name()));
                    };
                    parts.push((items.as_slice(), value.shape[axis..].iter().product()));
                }
                Elements::$kind(joined(&parts, outer))
            }};
        }
        let elements = match &first.elements {
            Elements::F32(_) => parts!(F32),
            Elements::F64(_) => parts!(F64),
            Elements::I64(_) => parts!(I64),
            Elements::I32(_) => parts!(I32),
            Elements::Bool(_) => parts!(Bool),
            Elements::Text(_) => parts!(Text),
        };
        Ok(vec![Value::new(&shape, elements)?])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        TabularCost { bytes: moved(inputs, outputs), ..TabularCost::default() }
    }
}

#[derive(Debug)]
struct Split {
    axis: i64,
    lengths: Vec<i64>,
    parts: usize,
}

/// `Split`: lengths are an input, an attribute before opset 13, or all the same.
pub(crate) fn split(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let (axis, lengths) = (node.int("axis")?.unwrap_or(0), node.ints("split")?.to_vec());
    Ok(Box::new(Split { axis, lengths, parts: node.node.output.len() }))
}

impl Operator for Split {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let axis = axis(self.axis, value.shape.len())?;
        let (outer, length, inner) = around(&value.shape, axis);
        check_parts(self.parts, outer)?;
        let given = if let Some(lengths) = inputs.get(1).copied().flatten() { lengths.i64s()? } else { self.lengths.clone() };
        let mut lengths: Vec<usize> = given.iter().map(|length| usize::try_from(*length).unwrap_or(usize::MAX)).collect();
        if lengths.is_empty() {
            let each = length.div_ceil(self.parts.max(1));
            lengths = (0..self.parts).map(|at| each.min(length.saturating_sub(at * each))).collect();
        }
        if lengths.len() != self.parts || lengths.iter().try_fold(0_usize, |sum, part| sum.checked_add(*part)) != Some(length) {
            return Err(format!("splits an axis of {length} in {lengths:?}, for {} outputs", self.parts));
        }
        let mut from = 0;
        let part = |taken: usize| {
            let range = from * inner..(from + taken) * inner;
            from += taken;
            let mut shape = value.shape.clone();
            shape[axis] = taken;
            let elements = map_each!(&value.elements, items => {
                items.chunks_exact((length * inner).max(1)).flat_map(|outer| outer[range.clone()].iter().cloned()).collect()
            });
            Value::new(&shape, elements)
        };
        lengths.into_iter().map(part).collect()
    }
}

/// A value that is always the same.
#[derive(Debug)]
struct Constant(Value);

/// `Constant`.
pub(crate) fn constant(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let value = if let Some(tensor) = node.tensor("value")? {
        from_proto(tensor)?
    } else if let Some(number) = node.float("value_float")? {
        Value::new(&[], Elements::F32(vec![number]))?
    } else if let Some(number) = node.int("value_int")? {
        Value::new(&[], Elements::I64(vec![number]))?
    } else if !node.floats("value_floats")?.is_empty() {
        let numbers = node.floats("value_floats")?.to_vec();
        Value::new(&[numbers.len()], Elements::F32(numbers))?
    } else if !node.ints("value_ints")?.is_empty() {
        let numbers = node.ints("value_ints")?.to_vec();
        Value::new(&[numbers.len()], Elements::I64(numbers))?
    } else {
        return Err("has no value of a type that is computed with".into());
    };
    Ok(Box::new(Constant(value)))
}

impl Operator for Constant {
    fn run(&self, _: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        Ok(vec![self.0.clone()])
    }
}

/// The element that fills the shape.
#[derive(Debug)]
struct ConstantOfShape(Elements);

/// `ConstantOfShape`.
pub(crate) fn constant_of_shape(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let element = match node.tensor("value")? {
        Some(tensor) => from_proto(tensor)?.elements,
        None => Elements::F32(vec![0.0]),
    };
    if element.len() == 1 {
        Ok(Box::new(ConstantOfShape(element)))
    } else {
        Err(format!("fills with {} elements", element.len()))
    }
}

impl Operator for ConstantOfShape {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let lengths = required(inputs, 0)?.i64s()?;
        let shape: Vec<usize> = lengths.iter().map(|length| usize::try_from(*length).unwrap_or(usize::MAX)).collect();
        let total = count(&shape)?;
        Ok(vec![Value::new(&shape, map_each!(&self.0, items => vec![Clone::clone(&items[0]); total]))?])
    }
}
