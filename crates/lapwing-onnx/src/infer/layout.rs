//! Operators that arrange the same elements in another shape, or repeat them.

use super::elementwise::broadcast_two;
use super::lengths::{Symbols, fixed, shown};
use crate::shaped::Length;
use crate::view::{Shapes, View, axes, axis};

/// `Reshape`: 0 keeps a length, -1 is what is left. The shape is an input, or an attribute before opset 5.
pub(crate) fn reshape(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let from = view.required(0)?;
    let wanted = match (view.has(1), view.lengths(1), view.node.ints("shape")) {
        (true, Some(wanted), _) => wanted,
        (true, None, _) => return Ok(vec![length_of(view, 1).map(|rank| symbols.some(rank))]),
        (false, _, Some(given)) => given.iter().map(|number| symbols.of(*number)).collect(),
        (false, _, None) => return Err("has no shape".into()),
    };
    let takes_zero = view.node.int("allowzero").unwrap_or(0) != 0;
    reshaped(from, &wanted, takes_zero, symbols).map(|shape| vec![Some(shape)])
}

fn reshaped(from: Option<&[Length]>, wanted: &[Length], takes_zero: bool, symbols: &mut Symbols) -> Result<Vec<Length>, String> {
    let mut made = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (at, length) in wanted.iter().enumerate() {
        made.push(match length {
            Length::Value(0) if !takes_zero => match from {
                Some(from) => from.get(at).cloned().ok_or_else(|| format!("keeps axis {at} of the shape {}", shown(from)))?,
                None => symbols.fresh(),
            },
            Length::Value(-1) if open.is_none() => {
                open = Some(at);
                Length::Value(1)
            }
            Length::Value(number) if *number < 0 => return Err(format!("has no such shape: {}", shown(wanted))),
            // it may be -1 or 0, which are no lengths
            Length::Var(symbol) if !symbol.positive => symbols.fresh(),
            other => other.clone(),
        });
    }
    let Some(from) = from else {
        if let Some(open) = open {
            made[open] = symbols.fresh();
        }
        return Ok(made);
    };
    if let (Some(before), Some(others)) = (fixed(from), fixed(&made)) {
        let product = |shape: &[usize]| shape.iter().fold(1_u128, |product, length| product.saturating_mul(*length as u128));
        let (total, others) = (product(&before), product(&others));
        let fails = || format!("the shape {} cannot become {}", shown(from), shown(wanted));
        match open {
            Some(_) if others == 0 && total != 0 => return Err(fails()),
            Some(open) if others == 0 => made[open] = Length::Value(0),
            Some(_) if !total.is_multiple_of(others) => return Err(fails()),
            Some(open) => made[open] = symbols.of(i64::try_from(total / others).unwrap_or(i64::MAX)),
            None if total != others => return Err(fails()),
            None => {}
        }
    } else if let Some(open) = open {
        let others: Vec<&Length> = made.iter().enumerate().filter(|(at, _)| *at != open).map(|(_, length)| length).collect();
        made[open] = symbols.quotient(&from.iter().collect::<Vec<_>>(), &others);
    }
    Ok(made)
}

/// The number of elements of an input, if it is a vector of known length.
pub(crate) fn length_of(view: &View<'_>, at: usize) -> Option<usize> {
    match view.shape(at)? {
        [Length::Value(length)] => usize::try_from(*length).ok().filter(|length| *length <= 64),
        _ => None,
    }
}

/// `Flatten`.
pub(crate) fn flatten(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![Some(symbols.some(2))]) };
    let at = view.node.int("axis").unwrap_or(1);
    let at = if at == shape.len() as i64 { shape.len() } else { axis(at, shape.len())? };
    Ok(vec![Some(vec![symbols.product(&shape[..at]), symbols.product(&shape[at..])])])
}

/// The axes of an attribute, or of an input since opset 13. `Err(true)` if they are given, but not known.
fn given_axes(view: &View<'_>) -> Result<Option<Vec<i64>>, bool> {
    match (view.has(1), view.ints(1)) {
        (true, Some(given)) => Ok(Some(given)),
        (true, None) => Err(true),
        (false, _) => Ok(view.node.ints("axes").map(<[i64]>::to_vec)),
    }
}

/// `Squeeze`.
pub(crate) fn squeeze(view: &View<'_>, _: &mut Symbols) -> Shapes {
    let (Some(shape), Ok(given)) = (view.required(0)?, given_axes(view)) else { return Ok(vec![None]) };
    let axes = match given {
        Some(given) => axes(&given, shape.len())?,
        // which axes have length 1 is known only where all lengths are
        None if shape.iter().all(|length| matches!(length, Length::Value(_))) => {
            (0..shape.len()).filter(|at| shape[*at] == Length::Value(1)).collect()
        }
        None => return Ok(vec![None]),
    };
    if let Some(wrong) = axes.iter().find(|at| matches!(shape[**at], Length::Value(length) if length != 1)) {
        return Err(format!("axis {wrong} of the shape {} does not have length 1", shown(shape)));
    }
    Ok(vec![Some((0..shape.len()).filter(|at| !axes.contains(at)).map(|at| shape[at].clone()).collect())])
}

/// `Unsqueeze`.
pub(crate) fn unsqueeze(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let shape = view.required(0)?;
    let Ok(given) = given_axes(view) else {
        let rank = length_of(view, 1).zip(shape).map(|(added, shape)| added + shape.len());
        return Ok(vec![rank.map(|rank| symbols.some(rank))]);
    };
    let (Some(shape), given) = (shape, given.ok_or("has no axes")?) else { return Ok(vec![None]) };
    let rank = shape.len() + given.len();
    let axes = axes(&given, rank)?;
    let mut rest = shape.iter();
    let length = |at| if axes.contains(&at) { Some(Length::Value(1)) } else { rest.next().cloned() };
    Ok(vec![(0..rank).map(length).collect()])
}

/// `Transpose`.
pub(crate) fn transpose(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else {
        return Ok(vec![view.node.ints("perm").filter(|order| order.len() <= 32).map(|order| symbols.some(order.len()))]);
    };
    let order = match view.node.ints("perm") {
        Some(order) if !order.is_empty() || shape.is_empty() => axes(order, shape.len())?,
        _ => (0..shape.len()).rev().collect(),
    };
    if order.len() != shape.len() {
        return Err(format!("perm has {} axes for the shape {}", order.len(), shown(shape)));
    }
    Ok(vec![Some(order.into_iter().map(|at| shape[at].clone()).collect())])
}

/// `Expand`.
pub(crate) fn expand(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let (shape, wanted) = (view.required(0)?, view.required(1).map(|_| view.lengths(1))?);
    match (shape, wanted) {
        (Some(shape), Some(wanted)) => {
            let wanted: Vec<Length> = wanted.into_iter().map(|length| positive(length, symbols)).collect();
            Ok(vec![Some(broadcast_two(shape, &wanted, symbols)?)])
        }
        (Some(shape), None) => {
            let rank = length_of(view, 1).map(|rank| rank.max(shape.len()));
            Ok(vec![rank.map(|rank| expanded(shape, rank, symbols))])
        }
        _ => Ok(vec![None]),
    }
}

/// What is known of an expanded shape: lengths that are not 1 stay.
fn expanded(shape: &[Length], rank: usize, symbols: &mut Symbols) -> Vec<Length> {
    let before = rank - shape.len();
    let length = |at: usize| match at.checked_sub(before).map(|own| &shape[own]) {
        Some(Length::Value(length)) if *length != 1 => Length::Value(*length),
        _ => symbols.fresh(),
    };
    (0..rank).map(length).collect()
}

/// A value as a length: one that may be negative is none.
pub(crate) fn positive(length: Length, symbols: &mut Symbols) -> Length {
    match &length {
        Length::Value(number) if *number < 0 => symbols.fresh(),
        Length::Var(symbol) if !symbol.positive => symbols.fresh(),
        _ => length,
    }
}

/// `Tile`.
pub(crate) fn tile(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let Some(repeats) = view.required(1).map(|_| view.lengths(1))? else { return Ok(vec![Some(symbols.some(shape.len()))]) };
    if repeats.len() != shape.len() {
        return Err(format!("has {} repeats for the shape {}", repeats.len(), shown(shape)));
    }
    let mut made = Vec::with_capacity(shape.len());
    for (length, times) in shape.iter().zip(repeats) {
        let times = positive(times, symbols);
        made.push(symbols.mul(length, &times));
    }
    Ok(vec![Some(made)])
}

/// `DepthToSpace`, and `SpaceToDepth`.
pub(crate) fn blocks(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![Some(symbols.some(4))]) };
    let [rows, channels, height, width] = shape else {
        return Err(format!("takes 4 axes, not the shape {}", shown(shape)));
    };
    let side = view.node.int("blocksize").filter(|side| (1..=i64::from(i16::MAX)).contains(side)).ok_or("has no blocksize")?;
    let (side, square) = (symbols.of(side), symbols.of(side * side));
    let made = if view.node.operator == "DepthToSpace" {
        [symbols.div(channels, &square), symbols.mul(height, &side), symbols.mul(width, &side)]
    } else {
        [symbols.mul(channels, &square), symbols.div(height, &side), symbols.div(width, &side)]
    };
    Ok(vec![Some([std::slice::from_ref(rows), &made].concat())])
}
