//! Operators that keep a shape, broadcast several, or reduce axes.

use super::lengths::{Symbols, shown};
use crate::shaped::Length;
use crate::view::{Shape, Shapes, View, axes};

/// Every output has the shape of the first input.
pub(crate) fn same(view: &View<'_>, _: &mut Symbols) -> Shapes {
    let shape = view.required(0)?.map(<[Length]>::to_vec);
    Ok(vec![shape; view.node.outputs.len()])
}

/// The first output has the shape of the first input.
pub(crate) fn first(view: &View<'_>, _: &mut Symbols) -> Shapes {
    Ok(vec![view.required(0)?.map(<[Length]>::to_vec)])
}

/// Operators of any number of inputs that are broadcast.
pub(crate) fn broadcast(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let mut all = Vec::with_capacity(view.inputs.len());
    for at in 0..view.inputs.len() {
        all.push(view.required(at)?);
    }
    broadcast_of(&all, symbols)
}

/// Quantised operators of two: each input is followed by its scale and its zero point.
pub(crate) fn quantised_broadcast(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    broadcast_of(&[view.required(0)?, view.required(3)?], symbols)
}

fn broadcast_of(all: &[Option<&[Length]>], symbols: &mut Symbols) -> Shapes {
    let mut made: Vec<Length> = all.first().copied().flatten().map_or_else(Vec::new, <[Length]>::to_vec);
    for shape in all {
        let Some(shape) = shape else { return Ok(vec![None]) };
        made = broadcast_two(&made, shape, symbols)?;
    }
    Ok(vec![Some(made)])
}

/// The shape that two broadcast to.
pub(crate) fn broadcast_two(one: &[Length], other: &[Length], symbols: &mut Symbols) -> Result<Vec<Length>, String> {
    let rank = one.len().max(other.len());
    let length =
        |shape: &[Length], at: usize| (at + shape.len()).checked_sub(rank).map_or(Length::Value(1), |own| shape[own].clone());
    let fails = || format!("the shapes {} and {} cannot be broadcast", shown(one), shown(other));
    (0..rank).map(|at| symbols.broadcast(&length(one, at), &length(other, at)).ok_or_else(fails)).collect()
}

/// `BatchNormalization`: statistics behind the first output have one number for each channel.
pub(crate) fn batch_norm(view: &View<'_>, _: &mut Symbols) -> Shapes {
    let shape = view.required(0)?;
    if let (Some(shape), Some(scale)) = (shape, view.shape(1)) {
        let channels = shape.get(1).ok_or_else(|| format!("normalizes the shape {}, which has no channels", shown(shape)))?;
        if let (Length::Value(channels), [Length::Value(scales)]) = (channels, scale)
            && channels != scales
        {
            return Err(format!("has {scales} scales for the shape {}", shown(shape)));
        }
    }
    let statistics = view.shape(1).map(<[Length]>::to_vec);
    let mut made: Vec<Shape> = vec![statistics; view.node.outputs.len()];
    if let Some(first) = made.first_mut() {
        *first = shape.map(<[Length]>::to_vec);
    }
    Ok(made)
}

/// `LayerNormalization` and its kin: means and deviations have length 1 where they were taken over.
pub(crate) fn layer_norm(view: &View<'_>, _: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![]) };
    let from = view.axis(-1, shape.len())?;
    let statistics: Vec<Length> =
        shape.iter().enumerate().map(|(at, length)| if at < from { length.clone() } else { Length::Value(1) }).collect();
    Ok(vec![Some(shape.to_vec()), Some(statistics.clone()), Some(statistics)])
}

/// `SkipLayerNormalization`: the sum is the fourth output.
pub(crate) fn skip_norm(view: &View<'_>, _: &mut Symbols) -> Shapes {
    let shape = view.required(0)?.map(<[Length]>::to_vec);
    Ok(vec![shape.clone(), None, None, shape])
}

/// `Dropout`, and what else makes a mask: a second output of the same shape.
pub(crate) fn with_mask(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    same(view, symbols)
}

/// `DynamicQuantizeLinear`: scale and zero point are scalars.
pub(crate) fn dynamic_quantise(view: &View<'_>, _: &mut Symbols) -> Shapes {
    Ok(vec![view.required(0)?.map(<[Length]>::to_vec), Some(vec![]), Some(vec![])])
}

/// `ReduceSum` and its kin.
pub(crate) fn reduce(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let keeps = view.node.int("keepdims").unwrap_or(1) != 0;
    let given = match (view.has(1), view.ints(1)) {
        (true, Some(given)) => given,
        (true, None) => return Ok(vec![keeps.then(|| symbols.some(shape.len()))]),
        (false, _) => view.node.ints("axes").map(<[i64]>::to_vec).unwrap_or_default(),
    };
    if given.is_empty() && view.node.int("noop_with_empty_axes").unwrap_or(0) != 0 {
        return Ok(vec![Some(shape.to_vec())]);
    }
    let axes = if given.is_empty() { (0..shape.len()).collect() } else { axes(&given, shape.len())? };
    Ok(vec![Some(without(shape, &axes, keeps))])
}

/// A shape whose axes are reduced.
fn without(shape: &[Length], axes: &[usize], keeps: bool) -> Vec<Length> {
    let mut made = Vec::with_capacity(shape.len());
    for (at, length) in shape.iter().enumerate() {
        match axes.contains(&at) {
            true if keeps => made.push(Length::Value(1)),
            true => {}
            false => made.push(length.clone()),
        }
    }
    made
}

/// `ArgMax` and `ArgMin`.
pub(crate) fn arg(view: &View<'_>, _: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let axis = view.axis(0, shape.len())?;
    Ok(vec![Some(without(shape, &[axis], view.node.int("keepdims").unwrap_or(1) != 0))])
}
