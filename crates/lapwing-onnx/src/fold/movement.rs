//! Operators that move elements without computing with them. Those of any fixed width are moved as bytes.

use bytes::Bytes;

use super::task::Task;
use super::walk::{Walk, strides};
use crate::constant;
use crate::shaped::Constant;
use crate::tensor::Datatype;
use crate::view::{Reason, axis, taken};

type Made = Result<Option<Vec<Constant>>, Reason>;

/// Evaluates a node; `None` if it is none of these.
pub(crate) fn evaluate(task: &Task<'_>) -> Made {
    let one = |constant: Option<Constant>| Ok(constant.map(|constant| vec![constant]));
    let Some(first) = task.input(0) else { return Ok(None) };
    match task.operator() {
        "Identity" | "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => {
            let fits = task.shape.iter().product::<usize>() == first.elements();
            one(fits.then(|| Constant { shape: task.shape.to_vec(), ..first.clone() }))
        }
        "Transpose" => one(transpose(task, first)),
        "Expand" => one(moved(first, task.shape, Walk::broadcast(&first.shape, task.shape))),
        "Tile" => one(tile(task, first)),
        "Concat" => one(concat(task)),
        "Split" => Ok(split(task, first)),
        "Slice" => slice(task, first).map(|made| made.map(|constant| vec![constant])),
        "Gather" => gather(task, first).map(|made| made.map(|constant| vec![constant])),
        "Where" => one(choose(task)),
        "ConstantOfShape" => one(fill(task)),
        "Trilu" => one(triangle(task, first)),
        _ => Ok(None),
    }
}

/// The elements at these places.
fn moved(from: &Constant, shape: &[usize], places: impl Iterator<Item = usize>) -> Option<Constant> {
    let width = from.datatype.bytes()?;
    let mut data = Vec::with_capacity(places.size_hint().0.saturating_mul(width));
    for place in places {
        data.extend_from_slice(from.data.get(place * width..(place + 1) * width)?);
    }
    Constant::filling(from.datatype, shape, data.into())
}

fn transpose(task: &Task<'_>, from: &Constant) -> Option<Constant> {
    let rank = from.shape.len();
    let order: Vec<usize> = match task.view.node.ints("perm") {
        Some(order) if !order.is_empty() => order.iter().map(|at| axis(*at, rank).ok()).collect::<Option<_>>()?,
        _ => (0..rank).rev().collect(),
    };
    let own = strides(&from.shape);
    moved(from, task.shape, Walk::new(task.shape, order.into_iter().map(|at| own[at]).collect(), 0))
}

/// Each axis is two: its repeats, and its elements.
fn tile(task: &Task<'_>, from: &Constant) -> Option<Constant> {
    let own = strides(&from.shape);
    let (mut shape, mut steps) = (Vec::new(), Vec::new());
    for (at, length) in from.shape.iter().enumerate() {
        shape.extend([task.shape[at].checked_div(*length)?, *length]);
        steps.extend([0, own[at]]);
    }
    moved(from, task.shape, Walk::new(&shape, steps, 0))
}

fn concat(task: &Task<'_>) -> Option<Constant> {
    let first = task.input(0)?;
    let at = axis(task.view.node.int("axis").unwrap_or(1), first.shape.len()).ok()?;
    let width = first.datatype.bytes()?;
    let outer: usize = first.shape[..at].iter().product();
    let mut parts = Vec::with_capacity(task.inputs.len());
    for input in task.inputs {
        let input = (*input).filter(|input| input.datatype == first.datatype)?;
        parts.push((&input.data, input.shape[at..].iter().product::<usize>() * width));
    }
    let mut data = Vec::with_capacity(parts.iter().map(|(data, _)| data.len()).sum());
    for row in 0..outer {
        for (part, bytes) in &parts {
            data.extend_from_slice(part.get(row * bytes..(row + 1) * bytes)?);
        }
    }
    Constant::filling(first.datatype, task.shape, data.into())
}

fn split(task: &Task<'_>, from: &Constant) -> Option<Vec<Constant>> {
    let at = axis(task.view.node.int("axis").unwrap_or(0), from.shape.len()).ok()?;
    let own = strides(&from.shape);
    let mut start = 0;
    let part = |shape: &Option<Vec<usize>>| {
        let shape = shape.as_ref()?;
        let made = moved(from, shape, Walk::new(shape, own.clone(), start * own[at]));
        start += shape[at] as isize;
        made
    };
    task.shapes.iter().map(part).collect()
}

fn slice(task: &Task<'_>, from: &Constant) -> Result<Option<Constant>, Reason> {
    let view = task.view;
    let given = |at: usize, name: &str| if view.has(at) { view.ints(at) } else { view.node.ints(name).map(<[i64]>::to_vec) };
    let (Some(starts), Some(stops)) = (given(1, "starts"), given(2, "ends")) else { return Ok(None) };
    let axes = given(3, "axes").unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = given(4, "steps").unwrap_or_else(|| vec![1; starts.len()]);
    let (mut shape, mut step_of, mut start) = (from.shape.clone(), strides(&from.shape), 0_isize);
    for (((first, stop), number), step) in starts.iter().zip(&stops).zip(&axes).zip(&steps) {
        let at = axis(*number, shape.len())?;
        let length = shape[at] as i64;
        let clamped = |number: i64| number.clamp(i32::MIN.into(), i32::MAX.into());
        let (first, stop, step) = (clamped(*first), clamped(*stop), clamped(*step));
        let count = taken(length, first, stop, step);
        let place = if first < 0 { first + length } else { first };
        let place = if step > 0 { place.clamp(0, length) } else { place.clamp(-1, length - 1) };
        shape[at] = usize::try_from(count).map_err(|e| e.to_string())?;
        if count > 0 {
            start += place as isize * step_of[at];
        }
        step_of[at] *= step as isize;
    }
    Ok((shape == task.shape).then(|| moved(from, task.shape, Walk::new(task.shape, step_of, start))).flatten())
}

fn gather(task: &Task<'_>, from: &Constant) -> Result<Option<Constant>, Reason> {
    let Some(indices) = task.input(1).and_then(Constant::ints) else { return Ok(None) };
    let at = axis(task.view.node.int("axis").unwrap_or(0), from.shape.len())?;
    let (outer, length, inner): (usize, usize, usize) =
        (from.shape[..at].iter().product(), from.shape[at], from.shape[at + 1..].iter().product());
    let place = |index: i64| axis(index, length).map_err(|_| format!("takes element {index} of an axis of {length}"));
    let places: Vec<usize> = indices.map(place).collect::<Result<_, _>>()?;
    let Some(width) = from.datatype.bytes() else { return Ok(None) };
    let bytes = inner * width;
    let mut data = Vec::with_capacity(outer.saturating_mul(places.len()).saturating_mul(bytes));
    for row in 0..outer {
        for place in &places {
            let begin = (row * length + place) * bytes;
            data.extend_from_slice(&from.data[begin..begin + bytes]);
        }
    }
    Ok(Constant::filling(from.datatype, task.shape, data.into()))
}

fn choose(task: &Task<'_>) -> Option<Constant> {
    let (conditions, yes, no) = (task.input(0)?, task.input(1)?, task.input(2)?);
    let width = yes.datatype.bytes().filter(|_| yes.datatype == no.datatype && conditions.datatype == Datatype::Bool)?;
    let walk = |from: &Constant| Walk::broadcast(&from.shape, task.shape);
    let mut data = Vec::with_capacity(task.shape.iter().product::<usize>() * width);
    for (condition, (a, b)) in walk(conditions).zip(walk(yes).zip(walk(no))) {
        let (from, place) = if *conditions.data.get(condition)? != 0 { (yes, a) } else { (no, b) };
        data.extend_from_slice(from.data.get(place * width..(place + 1) * width)?);
    }
    Constant::filling(yes.datatype, task.shape, data.into())
}

fn fill(task: &Task<'_>) -> Option<Constant> {
    let element = match task.view.node.tensor("value") {
        Some(tensor) => constant::read(tensor, None).ok().filter(|value| value.elements() == 1)?,
        None => Constant { datatype: Datatype::Fp32, shape: vec![], data: Bytes::from_static(&[0; 4]) },
    };
    element.datatype.bytes()?;
    let data: Bytes = element.data.repeat(task.shape.iter().product()).into();
    Constant::filling(element.datatype, task.shape, data)
}

/// `Trilu`: the elements on one side of a diagonal; zeros on the other.
fn triangle(task: &Task<'_>, from: &Constant) -> Option<Constant> {
    let [.., rows, columns] = from.shape[..] else { return None };
    let diagonal = match task.view.has(1) {
        true => *task.view.ints(1)?.first()?,
        false => 0,
    };
    let is_upper = task.view.node.int("upper").unwrap_or(1) != 0;
    let width = from.datatype.bytes()?;
    let mut data = from.data.to_vec();
    for (place, element) in data.chunks_exact_mut(width).enumerate() {
        let (row, column) = ((place / columns % rows) as i64, (place % columns) as i64);
        let beside = column.saturating_sub(row.saturating_add(diagonal));
        if if is_upper { beside < 0 } else { beside > 0 } {
            element.fill(0);
        }
    }
    Constant::filling(from.datatype, task.shape, data.into())
}
