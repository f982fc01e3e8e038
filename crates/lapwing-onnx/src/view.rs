//! What a rule sees of a node: its attributes, and what is known of its inputs.

use crate::shaped::{KnownValue, Length, ShapedNode, TensorFact};
use crate::tensor::Datatype;

/// Why a node cannot be right.
pub(crate) type Reason = String;
/// The lengths of a tensor's axes, if at least their number is known.
pub(crate) type Shape = Option<Vec<Length>>;
/// The shapes of a node's outputs; missing ones are unknown.
pub(crate) type Shapes = Result<Vec<Shape>, Reason>;

/// The most elements of a value that lengths are computed with.
pub(crate) const MOST_LENGTHS: usize = 1024;

/// A node and its inputs.
pub(crate) struct View<'a> {
    pub(crate) node: &'a ShapedNode,
    pub(crate) inputs: Vec<Option<&'a TensorFact>>,
}

impl<'a> View<'a> {
    /// Whether the input is given.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.fact(at).is_some()
    }

    pub(crate) fn fact(&self, at: usize) -> Option<&'a TensorFact> {
        self.inputs.get(at).copied().flatten()
    }

    /// The shape of an input that the operator cannot do without.
    pub(crate) fn required(&self, at: usize) -> Result<Option<&'a [Length]>, Reason> {
        self.fact(at).map(|fact| fact.shape.as_deref()).ok_or_else(|| format!("input {at} is missing"))
    }

    pub(crate) fn shape(&self, at: usize) -> Option<&'a [Length]> {
        self.fact(at)?.shape.as_deref()
    }

    pub(crate) fn datatype(&self, at: usize) -> Option<Datatype> {
        self.fact(at)?.datatype
    }

    /// The whole numbers of a constant input of a moderate size.
    pub(crate) fn ints(&self, at: usize) -> Option<Vec<i64>> {
        match &self.fact(at)?.value {
            KnownValue::Constant(constant) if constant.elements() <= MOST_LENGTHS => Some(constant.ints()?.collect()),
            _ => None,
        }
    }

    /// The numbers of a constant input of a moderate size.
    pub(crate) fn floats(&self, at: usize) -> Option<Vec<f64>> {
        match &self.fact(at)?.value {
            KnownValue::Constant(constant) if constant.elements() <= MOST_LENGTHS => Some(constant.floats()?.collect()),
            _ => None,
        }
    }

    /// The elements of an input that are known as lengths are: whole numbers of 32 bits, also of a type with fractions. It is a scalar or
    /// a vector.
    pub(crate) fn lengths(&self, at: usize) -> Option<Vec<Length>> {
        let fact = self.fact(at)?;
        if fact.shape.as_ref().is_none_or(|shape| shape.len() > 1) {
            return None;
        }
        match &fact.value {
            KnownValue::Unknown | KnownValue::Weight => None,
            KnownValue::Lengths(lengths) => Some(lengths.clone()),
            KnownValue::Constant(constant) if constant.elements() <= MOST_LENGTHS => {
                let whole = |x: f64| (x.fract() == 0.0 && x.abs() <= f64::from(i32::MAX)).then_some(Length::Value(x as i32));
                constant.floats()?.map(whole).collect()
            }
            KnownValue::Constant(_) => None,
        }
    }

    /// An axis of the attribute, counted from the start.
    pub(crate) fn axis(&self, default: i64, rank: usize) -> Result<usize, Reason> {
        axis(self.node.int("axis").unwrap_or(default), rank)
    }

    /// Lengths of the attribute: none of them negative.
    pub(crate) fn sizes(&self, name: &str, count: usize, default: i64) -> Result<Vec<i64>, Reason> {
        let given = self.node.ints(name).map_or_else(|| vec![default; count], <[i64]>::to_vec);
        if given.len() != count {
            return Err(format!("{name} has {} numbers, expected {count}", given.len()));
        }
        match given.iter().find(|number| !(0..=i64::from(i32::MAX)).contains(*number)) {
            Some(number) => Err(format!("{name} has the number {number}")),
            None => Ok(given),
        }
    }
}

/// An axis that may be counted from the end.
pub(crate) fn axis(number: i64, rank: usize) -> Result<usize, Reason> {
    let from_start = if number < 0 { number.saturating_add(rank as i64) } else { number };
    usize::try_from(from_start)
        .ok()
        .filter(|axis| *axis < rank)
        .ok_or_else(|| format!("axis {number} is none of a tensor of {rank} axes"))
}

/// Several axes, each once.
pub(crate) fn axes(numbers: &[i64], rank: usize) -> Result<Vec<usize>, Reason> {
    let mut axes = Vec::with_capacity(numbers.len().min(rank));
    for number in numbers {
        let axis = axis(*number, rank)?;
        if axes.contains(&axis) {
            return Err(format!("axis {number} is there twice"));
        }
        axes.push(axis);
    }
    Ok(axes)
}

/// How many elements of an axis a slice has.
pub(crate) fn taken(length: i64, start: i64, stop: i64, step: i64) -> i64 {
    let from_start = |place: i64| if place < 0 { place + length } else { place };
    let (start, stop) = (from_start(start), from_start(stop));
    let (span, step) = if step > 0 {
        (stop.clamp(0, length) - start.clamp(0, length), step)
    } else {
        (start.clamp(-1, length - 1) - stop.clamp(-1, length - 1), step.saturating_neg())
    };
    if span <= 0 { 0 } else { (span - 1) / step + 1 }
}
