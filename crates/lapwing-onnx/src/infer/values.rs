//! Scalars and vectors that are computed from lengths: what stands between a `Shape` and the `Reshape` that it is for.

use super::lengths::Symbols;
use super::select::range_of;
use crate::constant::is_float;
use crate::shaped::Length;
use crate::view::{MOST_LENGTHS, View};

/// The elements of the first output, as far as lengths can say them. `count` is their number.
pub(crate) fn made(view: &View<'_>, count: usize, symbols: &mut Symbols) -> Option<Vec<Length>> {
    if !matches!(view.node.domain.as_str(), "" | "ai.onnx") || count > MOST_LENGTHS {
        return None;
    }
    let values = match view.node.operator.as_str() {
        "Shape" => {
            let shape = view.shape(0)?;
            shape[range_of(view, shape.len())].to_vec()
        }
        "Size" => vec![symbols.product(view.shape(0)?)],
        "Identity" | "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten" => view.lengths(0)?,
        // whole numbers stay what they are in any type that holds them
        "Cast" => view.lengths(0)?,
        "Ceil" | "Floor" | "Round" => view.lengths(0)?,
        "Gather" => {
            let (values, indices) = (view.lengths(0)?, view.ints(1)?);
            let taken = indices.into_iter().map(|index| crate::view::axis(index, values.len()).ok().map(|at| values[at].clone()));
            taken.collect::<Option<_>>()?
        }
        "Slice" => slice(view)?,
        "Concat" => {
            let parts: Option<Vec<Vec<Length>>> = (0..view.inputs.len()).map(|at| view.lengths(at)).collect();
            parts?.concat()
        }
        "Expand" | "Tile" => match view.lengths(0)?.as_slice() {
            [one] => vec![one.clone(); count],
            _ => return None,
        },
        "Neg" => {
            let zero = Length::Value(0);
            view.lengths(0)?.iter().map(|value| symbols.sub(&zero, value)).collect()
        }
        "ReduceProd" => vec![symbols.product(&view.lengths(0)?)],
        "ReduceSum" => vec![view.lengths(0)?.iter().fold(Length::Value(0), |sum, value| symbols.add(&sum, value))],
        "Where" => choose(view, count)?,
        "Add" | "Sub" | "Mul" | "Div" | "Min" | "Max" => arithmetic(view, count, symbols)?,
        "Equal" | "Less" | "Greater" | "LessOrEqual" | "GreaterOrEqual" => compare(view, count)?,
        _ => return None,
    };
    (values.len() == count).then_some(values)
}

fn slice(view: &View<'_>) -> Option<Vec<Length>> {
    let values = view.lengths(0)?;
    let first = |at: usize, name: &str| match view.has(at) {
        true => view.ints(at)?.first().copied(),
        false => view.node.ints(name)?.first().copied(),
    };
    let (start, stop) = (first(1, "starts")?, first(2, "ends")?);
    let step = if view.has(4) { first(4, "")? } else { 1 };
    let length = values.len() as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
    let (start, stop) = (place(start), place(stop));
    let taken = |at: i64| usize::try_from(at).ok().and_then(|at| values.get(at).cloned());
    match step {
        1.. => (start.clamp(0, length)..stop.clamp(0, length)).step_by(usize::try_from(step).ok()?).map(taken).collect(),
        -1 => (stop.clamp(-1, length - 1) + 1..=start.clamp(-1, length - 1)).rev().map(taken).collect(),
        _ => None,
    }
}

/// The elements of inputs that are broadcast to `count`.
fn pairs(a: Vec<Length>, b: Vec<Length>, count: usize) -> Option<Vec<(Length, Length)>> {
    let spread = |values: Vec<Length>| match values.len() {
        1 => Some(vec![values[0].clone(); count]),
        length => (length == count).then_some(values),
    };
    Some(spread(a)?.into_iter().zip(spread(b)?).collect())
}

fn choose(view: &View<'_>, count: usize) -> Option<Vec<Length>> {
    let conditions: Vec<Length> = view.ints(0)?.into_iter().map(|holds| Length::Value(i32::from(holds != 0))).collect();
    let chosen = pairs(view.lengths(1)?, view.lengths(2)?, count)?;
    let indices = pairs(conditions, vec![Length::Value(0)], count)?;
    Some(
        indices.into_iter().zip(chosen).map(|((holds, _), (yes, no))| if holds == Length::Value(1) { yes } else { no }).collect(),
    )
}

fn arithmetic(view: &View<'_>, count: usize, symbols: &mut Symbols) -> Option<Vec<Length>> {
    let has_fractions = view.datatype(0).is_none_or(is_float);
    let mut values = view.lengths(0)?;
    for at in 1..view.inputs.len() {
        let mut made = Vec::with_capacity(count);
        for (a, b) in pairs(values, view.lengths(at)?, count)? {
            made.push(match view.node.operator.as_str() {
                "Add" => symbols.add(&a, &b),
                "Sub" => symbols.sub(&a, &b),
                "Mul" => symbols.mul(&a, &b),
                "Min" => symbols.min(&a, &b),
                "Max" => symbols.max(&a, &b),
                // a quotient with a fraction is no length
                _ if has_fractions => match (&a, &b) {
                    (_, Length::Value(1)) => a,
                    (Length::Value(x), Length::Value(y)) if *y != 0 && x % y == 0 => Length::Value(x / y),
                    _ => return None,
                },
                _ => symbols.div(&a, &b),
            });
        }
        values = made;
    }
    Some(values)
}

/// Comparisons that hold, or do not, whatever the lengths are.
fn compare(view: &View<'_>, count: usize) -> Option<Vec<Length>> {
    let compared = |(a, b): (Length, Length)| {
        let ((a_least, a_most), (b_least, b_most)) = (range(&a), range(&b));
        let is_same = a == b;
        let holds = match view.node.operator.as_str() {
            "Equal" if is_same => true,
            "Equal" if a_most < b_least || b_most < a_least => false,
            "Less" if a_most < b_least => true,
            "Less" if is_same || a_least >= b_most => false,
            "Greater" if a_least > b_most => true,
            "Greater" if is_same || a_most <= b_least => false,
            "LessOrEqual" if is_same || a_most <= b_least => true,
            "LessOrEqual" if a_least > b_most => false,
            "GreaterOrEqual" if is_same || a_least >= b_most => true,
            "GreaterOrEqual" if a_most < b_least => false,
            _ => return None,
        };
        Some(Length::Value(i32::from(holds)))
    };
    pairs(view.lengths(0)?, view.lengths(1)?, count)?.into_iter().map(compared).collect()
}

/// The numbers that an expression may be. A name stands for a length, which is not negative.
fn range(length: &Length) -> (i64, i64) {
    match length {
        Length::Value(number) => ((*number).into(), (*number).into()),
        other if other.is_positive() => (0, i64::MAX),
        _ => (i64::MIN, i64::MAX),
    }
}
