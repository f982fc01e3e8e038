//! Operators that change shapes: `Reshape`, `Flatten`, `Squeeze`, `Unsqueeze`, `Transpose`, `Expand`, `Shape`, `Identity`.

use super::axes::axis;
use super::binary::{broadcast, places};
use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, required};
use crate::value::{Elements, MOST_AXES, Value, count, map_each};

#[derive(Debug)]
enum Change {
    Identity,
    /// Whether a length of 0 is meant; else it is that of the input.
    Reshape(Option<Vec<i64>>, bool),
    Flatten(i64),
    Squeeze(Option<Vec<i64>>),
    Unsqueeze(Option<Vec<i64>>),
    Transpose(Vec<usize>),
    Expand,
    Shape(i64, Option<i64>),
}

type Loaded = Result<Box<dyn Operator>, Reason>;

/// `Identity`, and `Dropout` where it does nothing.
pub(crate) fn identity(_: Attributes<'_>, _: &[Option<&Value>]) -> Loaded {
    Ok(Box::new(Change::Identity))
}

fn listed(node: Attributes<'_>, name: &str) -> Result<Option<Vec<i64>>, Reason> {
    let given = node.ints(name)?;
    let is_there = node.node.attribute.iter().any(|attribute| attribute.name == name);
    Ok(is_there.then(|| given.to_vec()))
}

/// `Reshape`.
pub(crate) fn reshape(node: Attributes<'_>, _: &[Option<&Value>]) -> Loaded {
    Ok(Box::new(Change::Reshape(listed(node, "shape")?, node.int("allowzero")?.unwrap_or(0) != 0)))
}

/// `Flatten`.
pub(crate) fn flatten(node: Attributes<'_>, _: &[Option<&Value>]) -> Loaded {
    Ok(Box::new(Change::Flatten(node.int("axis")?.unwrap_or(1))))
}

/// `Squeeze`.
pub(crate) fn squeeze(node: Attributes<'_>, _: &[Option<&Value>]) -> Loaded {
    Ok(Box::new(Change::Squeeze(listed(node, "axes")?)))
}

/// `Unsqueeze`.
pub(crate) fn unsqueeze(node: Attributes<'_>, _: &[Option<&Value>]) -> Loaded {
    Ok(Box::new(Change::Unsqueeze(listed(node, "axes")?)))
}

/// `Transpose`.
pub(crate) fn transpose(node: Attributes<'_>, inputs: &[Option<&Value>]) -> Loaded {
    let rank = required(inputs, 0)?.shape.len();
    let mut order = node.indices("perm", rank)?;
    if order.is_empty() {
        order = (0..rank).rev().collect();
    }
    if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
        return Err(format!("perm {order:?} is no order of {rank} axes"));
    }
    Ok(Box::new(Change::Transpose(order)))
}

/// `Expand`.
pub(crate) fn expand(_: Attributes<'_>, _: &[Option<&Value>]) -> Loaded {
    Ok(Box::new(Change::Expand))
}

/// `Shape`.
pub(crate) fn shape_of(node: Attributes<'_>, _: &[Option<&Value>]) -> Loaded {
    Ok(Box::new(Change::Shape(node.int("start")?.unwrap_or(0), node.int("end")?)))
}

/// The lengths of a reshaped value: 0 keeps one, -1 is what is left.
fn reshaped(from: &[usize], wanted: &[i64], takes_zero: bool) -> Result<Vec<usize>, Reason> {
    let length = |(at, length): (usize, &i64)| match *length {
        0 if !takes_zero => from.get(at).copied().ok_or_else(|| format!("keeps axis {at} of {from:?}")),
        -1 => Ok(1),
        length => usize::try_from(length).map_err(|_| format!("has an axis of length {length}")),
    };
    let mut shape: Vec<usize> = wanted.iter().enumerate().map(length).collect::<Result<_, _>>()?;
    let total = count(from)?;
    if let Some(open) = wanted.iter().position(|length| *length == -1) {
        let others = count(&shape)?;
        shape[open] = total.checked_div(others).unwrap_or(0);
    }
    if count(&shape)? == total { Ok(shape) } else { Err(format!("{from:?} cannot be reshaped to {wanted:?}")) }
}

impl Change {
    /// Axes from the attribute, or from the second input.
    fn axes(given: &Option<Vec<i64>>, inputs: &[Option<&Value>]) -> Result<Option<Vec<i64>>, Reason> {
        match (given, inputs.get(1).copied().flatten()) {
            (_, Some(value)) => Ok(Some(value.i64s()?)),
            (given, None) => Ok(given.clone()),
        }
    }

    fn shape(&self, inputs: &[Option<&Value>]) -> Result<Vec<usize>, Reason> {
        let from = &required(inputs, 0)?.shape;
        match self {
            Self::Reshape(given, takes_zero) => {
                let wanted = Self::axes(given, inputs)?.ok_or("has no shape")?;
                reshaped(from, &wanted, *takes_zero)
            }
            Self::Flatten(at) => {
                let at = if *at == from.len() as i64 { from.len() } else { axis(*at, from.len())? };
                Ok(vec![from[..at].iter().product(), from[at..].iter().product()])
            }
            Self::Squeeze(given) => {
                let axes = match Self::axes(given, inputs)? {
                    Some(axes) => axes.into_iter().map(|number| axis(number, from.len())).collect::<Result<Vec<_>, _>>()?,
                    None => (0..from.len()).filter(|axis| from[*axis] == 1).collect(),
                };
                if let Some(wrong) = axes.iter().find(|axis| from[**axis] != 1) {
                    return Err(format!("axis {wrong} of {from:?} cannot be squeezed"));
                }
                Ok((0..from.len()).filter(|axis| !axes.contains(axis)).map(|axis| from[axis]).collect())
            }
            Self::Unsqueeze(given) => {
                let axes = Self::axes(given, inputs)?.ok_or("has no axes")?;
                let rank = from.len() + axes.len();
                if rank > MOST_AXES {
                    return Err(format!("makes {rank} axes; the bound is {MOST_AXES}"));
                }
                let mut axes = axes.into_iter().map(|number| axis(number, rank)).collect::<Result<Vec<_>, _>>()?;
                axes.sort_unstable();
                let mut shape = from.clone();
                for axis in axes {
                    if axis > shape.len() {
                        return Err(format!("puts an axis at {axis} of {shape:?}"));
                    }
                    shape.insert(axis, 1);
                }
                Ok(shape)
            }
            _ => Ok(from.clone()),
        }
    }
}

impl Operator for Change {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        match self {
            Self::Transpose(order) => {
                if order.len() != value.shape.len() {
                    return Err(format!("transposes {} axes of {:?}", order.len(), value.shape));
                }
                let shape: Vec<usize> = order.iter().map(|axis| value.shape[*axis]).collect();
                let stride = |axis: &usize| value.shape[axis + 1..].iter().product::<usize>();
                let strides: Vec<usize> = order.iter().map(stride).collect();
                let place = |at: usize| {
                    let (mut left, mut place) = (at, 0);
                    for (length, stride) in shape.iter().zip(&strides).rev() {
                        place += left % length * stride;
                        left /= length;
                    }
                    place
                };
                let total = value.elements.len();
                let elements =
                    map_each!(&value.elements, items => (0..total).map(|at| Clone::clone(&items[place(at)])).collect());
                Ok(vec![Value::new(&shape, elements)?])
            }
            Self::Expand => {
                let wanted: Vec<usize> =
                    required(inputs, 1)?.i64s()?.iter().map(|length| usize::try_from(*length).unwrap_or(usize::MAX)).collect();
                let shape = broadcast(&[&value.shape, &wanted])?;
                let places = places(&value.shape, &shape);
                let elements = map_each!(&value.elements, items => places.iter().map(|at| Clone::clone(&items[*at])).collect());
                Ok(vec![Value::new(&shape, elements)?])
            }
            Self::Shape(start, end) => {
                let rank = value.shape.len() as i64;
                let clamp = |end: i64| (if end < 0 { end + rank } else { end }).clamp(0, rank) as usize;
                let (start, end) = (clamp(*start), end.map_or(value.shape.len(), clamp));
                let lengths: Vec<i64> = value.shape.get(start..end).unwrap_or(&[]).iter().map(|length| *length as i64).collect();
                Ok(vec![Value::new(&[lengths.len()], Elements::I64(lengths))?])
            }
            _ => Ok(vec![Value::new(&self.shape(inputs)?, value.elements.clone())?]),
        }
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> crate::operator::TabularCost {
        crate::operator::TabularCost { bytes: crate::operator::moved(inputs, outputs), ..Default::default() }
    }
}
