//! Operators along axes: reductions and running sums.

use super::task::Task;
use super::walk::{Walk, strides};
use crate::constant::is_float;
use crate::shaped::Constant;
use crate::view::{Reason, axis};

/// Evaluates a node; `None` if it is none of these.
pub(crate) fn evaluate(task: &Task<'_>) -> Result<Option<Constant>, Reason> {
    let Some(from) = task.input(0) else { return Ok(None) };
    match task.operator() {
        "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceProd" => reduce(task, from),
        "CumSum" => Ok(running(task, from)),
        _ => Ok(None),
    }
}

fn reduce(task: &Task<'_>, from: &Constant) -> Result<Option<Constant>, Reason> {
    let rank = from.shape.len();
    let view = task.view;
    let given = if view.has(1) { view.ints(1) } else { Some(view.node.ints("axes").map(<[i64]>::to_vec).unwrap_or_default()) };
    let Some(given) = given else { return Ok(None) };
    if given.is_empty() && view.node.int("noop_with_empty_axes").unwrap_or(0) != 0 {
        return Ok(Some(from.clone()));
    }
    let reduced: Vec<usize> = if given.is_empty() {
        (0..rank).collect()
    } else {
        given.into_iter().map(|number| axis(number, rank)).collect::<Result<_, _>>()?
    };
    // the kept axes in front, the reduced ones behind
    let own = strides(&from.shape);
    let is_reduced = |at: &usize| reduced.contains(at);
    let order: Vec<usize> = (0..rank).filter(|at| !is_reduced(at)).chain((0..rank).filter(is_reduced)).collect();
    let shape: Vec<usize> = order.iter().map(|at| from.shape[*at]).collect();
    let each: usize = (0..rank).filter(is_reduced).map(|at| from.shape[at]).product();
    let Some(numbers) = from.floats().map(Iterator::collect::<Vec<f64>>) else { return Ok(None) };
    // sums of larger whole numbers are not exact
    let is_exact = is_float(from.datatype) || numbers.iter().all(|x| x.abs() < 4e9);
    if each == 0 || !is_exact {
        return Ok(None);
    }
    let gathered: Vec<f64> = Walk::new(&shape, order.iter().map(|at| own[*at]).collect(), 0).map(|at| numbers[at]).collect();
    let operator = task.operator();
    let one = |group: &[f64]| {
        let items = group.iter().copied();
        match operator {
            "ReduceSum" => items.sum(),
            "ReduceMean" => items.sum::<f64>() / each as f64,
            "ReduceProd" => items.product(),
            "ReduceMax" => items.fold(f64::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a }),
            _ => items.fold(f64::INFINITY, |a, b| if b < a || b.is_nan() { b } else { a }),
        }
    };
    Ok(Constant::of_floats(from.datatype, task.shape, gathered.chunks_exact(each).map(one)))
}

fn running(task: &Task<'_>, from: &Constant) -> Option<Constant> {
    let at = axis(*task.view.ints(1)?.first()?, from.shape.len()).ok()?;
    let is = |name: &str| task.view.node.int(name).unwrap_or(0) != 0;
    if is("exclusive") || is("reverse") || is_float(from.datatype) {
        // sums of numbers with fractions depend on their order and precision
        return None;
    }
    let mut numbers: Vec<i64> = from.ints()?.collect();
    let inner: usize = from.shape[at + 1..].iter().product();
    for place in inner..numbers.len() {
        if !(place / inner).is_multiple_of(from.shape[at]) {
            numbers[place] = numbers[place].wrapping_add(numbers[place - inner]);
        }
    }
    Constant::of_ints(from.datatype, task.shape, numbers.into_iter())
}
