//! `Gather`, `Slice`, `TopK`.

use super::axes::{around, axis};
use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, TabularCost, moved, required};
use crate::value::{Elements, MOST_AXES, Value, count, map_each};

#[derive(Debug)]
struct Gather(i64);

/// `Gather`.
pub(crate) fn gather(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(Gather(node.int("axis")?.unwrap_or(0))))
}

/// The items at these places of an axis.
fn taken(value: &Value, axis: usize, places: &[usize]) -> Elements {
    let (_, length, inner) = around(&value.shape, axis);
    map_each!(&value.elements, items => {
        let outer = items.chunks_exact((length * inner).max(1));
        outer.flat_map(|part| places.iter().flat_map(move |at| part[at * inner..(at + 1) * inner].iter().cloned())).collect()
    })
}

impl Operator for Gather {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let (value, indices) = (required(inputs, 0)?, required(inputs, 1)?);
        let at = axis(self.0, value.shape.len())?;
        let length = value.shape[at];
        let place = |index: i64| axis(index, length).map_err(|_| format!("takes element {index} of {length}"));
        let places: Vec<usize> = indices.i64s()?.into_iter().map(place).collect::<Result<_, _>>()?;
        let shape = [&value.shape[..at], &indices.shape, &value.shape[at + 1..]].concat();
        count(&shape)?;
        Ok(vec![Value::new(&shape, taken(value, at, &places))?])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        TabularCost { bytes: moved(inputs, outputs), ..TabularCost::default() }
    }
}

/// The attributes of `Slice` before opset 10: starts, ends, axes.
#[derive(Debug)]
struct Slice([Vec<i64>; 3]);

/// `Slice`.
pub(crate) fn slice(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(Slice([node.ints("starts")?.to_vec(), node.ints("ends")?.to_vec(), node.ints("axes")?.to_vec()])))
}

impl Operator for Slice {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let given = |at: usize| match inputs.get(at).copied().flatten() {
            Some(value) => value.i64s(),
            None => Ok(self.0.get(at - 1).cloned().unwrap_or_default()),
        };
        let (starts, ends, mut axes, mut steps) = (given(1)?, given(2)?, given(3)?, given(4)?);
        if axes.is_empty() {
            axes = (0..starts.len() as i64).collect();
        }
        if steps.is_empty() {
            steps = vec![1; starts.len()];
        }
        if starts.len() > MOST_AXES {
            return Err(format!("has {} starts; the bound is {MOST_AXES}", starts.len()));
        }
        if [ends.len(), axes.len(), steps.len()].iter().any(|length| *length != starts.len()) {
            return Err(format!(
                "has {} starts, {} ends, {} axes and {} steps",
                starts.len(),
                ends.len(),
                axes.len(),
                steps.len()
            ));
        }
        let mut made = value.clone();
        for (((start, end), number), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
            let at = axis(*number, made.shape.len())?;
            let length = made.shape[at] as i64;
            let from_start = |place: i64| if place < 0 { place.saturating_add(length) } else { place };
            let places: Vec<usize> = match *step {
                0 => return Err("has a step of 0".into()),
                step if step > 0 => {
                    let (start, end) = (from_start(*start).clamp(0, length), from_start(*end).clamp(0, length));
                    (start..end).step_by(usize::try_from(step).unwrap_or(usize::MAX)).map(|place| place as usize).collect()
                }
                step => {
                    let (start, end) = (from_start(*start).clamp(-1, length - 1), from_start(*end).clamp(-1, length - 1));
                    let step = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
                    (end + 1..=start).rev().step_by(step).map(|place| place as usize).collect()
                }
            };
            let elements = taken(&made, at, &places);
            made.shape[at] = places.len();
            made = Value::new(&made.shape, elements)?;
        }
        Ok(vec![made])
    }
}

#[derive(Debug)]
struct TopK {
    axis: i64,
    count: Option<i64>,
    is_largest: bool,
}

/// `TopK` of single precision; equal elements come in the order of their places.
pub(crate) fn top_k(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let is_largest = node.int("largest")?.unwrap_or(1) != 0;
    Ok(Box::new(TopK { axis: node.int("axis")?.unwrap_or(-1), count: node.int("k")?, is_largest }))
}

impl Operator for TopK {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let items = value.f32s()?;
        let at = axis(self.axis, value.shape.len())?;
        let (outer, length, inner) = around(&value.shape, at);
        let wanted = match inputs.get(1).copied().flatten() {
            Some(count) => count.i64s()?.first().copied(),
            None => self.count,
        };
        let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok()).filter(|wanted| *wanted <= length);
        let wanted = wanted.ok_or_else(|| format!("takes more than the {length} elements that there are"))?;
        let mut shape = value.shape.clone();
        shape[at] = wanted;
        let (mut values, mut places) = (vec![0.0_f32; count(&shape)?], vec![0_i64; count(&shape)?]);
        for line in 0..outer * inner {
            let (from, to) = (line / inner * length * inner + line % inner, line / inner * wanted * inner + line % inner);
            let mut order: Vec<usize> = (0..length).collect();
            let item = |place: usize| items[from + place * inner];
            let by_value = |a: &usize, b: &usize| {
                if self.is_largest { item(*b).total_cmp(&item(*a)) } else { item(*a).total_cmp(&item(*b)) }
            };
            order.sort_by(by_value);
            for (rank, place) in order[..wanted].iter().enumerate() {
                values[to + rank * inner] = item(*place);
                places[to + rank * inner] = *place as i64;
            }
        }
        Ok(vec![Value::new(&shape, Elements::F32(values))?, Value::new(&shape, Elements::I64(places))?])
    }
}
