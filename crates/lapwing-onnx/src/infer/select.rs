//! Operators that take, join or make elements: `Gather`, `Slice`, `Concat`, `Pad`, `Resize`, `Range` and their kin.

use super::layout::{length_of, positive};
use super::lengths::{Symbols, shown};
use crate::shaped::Length;
use crate::view::{Shape, Shapes, View, axes, axis, taken};

/// `Gather`.
pub(crate) fn gather(view: &View<'_>, _: &mut Symbols) -> Shapes {
    let (Some(shape), Some(indices)) = (view.required(0)?, view.required(1)?) else { return Ok(vec![None]) };
    let at = view.axis(0, shape.len())?;
    Ok(vec![Some([&shape[..at], indices, &shape[at + 1..]].concat())])
}

/// `GatherElements`: the shape of the indices.
pub(crate) fn like_second(view: &View<'_>, _: &mut Symbols) -> Shapes {
    Ok(vec![view.required(1)?.map(<[Length]>::to_vec)])
}

/// `GatherND`.
pub(crate) fn gather_nd(view: &View<'_>, _: &mut Symbols) -> Shapes {
    let (Some(shape), Some(indices)) = (view.required(0)?, view.required(1)?) else { return Ok(vec![None]) };
    let (last, outer) = indices.split_last().ok_or("has indices that are a scalar")?;
    let Length::Value(taken) = last else { return Ok(vec![None]) };
    let batch = view.node.int("batch_dims").unwrap_or(0);
    let from = usize::try_from(batch.saturating_add((*taken).into())).ok().filter(|from| *from <= shape.len());
    let from = from.ok_or_else(|| format!("takes {taken} axes of the shape {}", shown(shape)))?;
    Ok(vec![Some([outer, &shape[from..]].concat())])
}

/// `Concat`.
pub(crate) fn concat(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    join(view, symbols, &(0..view.inputs.len()).collect::<Vec<_>>())
}

/// `QLinearConcat`: each input is followed by its scale and its zero point, behind those of the output.
pub(crate) fn quantised_concat(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    join(view, symbols, &(2..view.inputs.len()).step_by(3).collect::<Vec<_>>())
}

fn join(view: &View<'_>, symbols: &mut Symbols, places: &[usize]) -> Shapes {
    let mut shapes = Vec::with_capacity(places.len());
    for at in places {
        shapes.push(view.required(*at)?);
    }
    let Some(first) = shapes.iter().flatten().next() else { return Ok(vec![None]) };
    let at = view.axis(1, first.len())?;
    let mut made = first.to_vec();
    made[at] = Length::Value(0);
    for shape in &shapes {
        let Some(shape) = shape else {
            made[at] = symbols.fresh();
            continue;
        };
        let is_alike =
            |axis: usize| axis == at || !matches!((&shape[axis], &made[axis]), (Length::Value(a), Length::Value(b)) if a != b);
        if shape.len() != made.len() || !(0..made.len()).all(is_alike) {
            return Err(format!("the shapes {} and {} cannot be joined along axis {at}", shown(first), shown(shape)));
        }
        for (axis, length) in shape.iter().enumerate().filter(|(axis, _)| *axis != at) {
            // a number says more than a name
            if matches!(length, Length::Value(_)) {
                made[axis] = length.clone();
            }
        }
        made[at] = symbols.add(&made[at], &shape[at]);
    }
    if shapes.iter().any(Option::is_none) {
        made[at] = symbols.fresh();
    }
    Ok(vec![Some(made)])
}

/// `Split`: lengths are an input, an attribute before opset 13, or all the same.
pub(crate) fn split(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![]) };
    let (at, parts) = (view.axis(0, shape.len())?, view.node.outputs.len());
    let given = match view.has(1) {
        true => view.lengths(1),
        false => view
            .node
            .ints("split")
            .filter(|given| !given.is_empty())
            .map(|given| given.iter().map(|length| symbols.of(*length)).collect::<Vec<_>>()),
    };
    let lengths = match given {
        Some(lengths) => {
            let sum = lengths.iter().fold(Length::Value(0), |sum, length| symbols.add(&sum, length));
            let differs = matches!((&sum, &shape[at]), (Length::Value(a), Length::Value(b)) if a != b);
            if lengths.len() < parts || differs {
                return Err(format!("splits axis {at} of the shape {} in {}", shown(shape), shown(&lengths)));
            }
            lengths
        }
        None if view.has(1) => symbols.some(parts),
        None => equal_parts(&shape[at], parts, symbols),
    };
    let part = |length: &Length| {
        let mut made = shape.to_vec();
        made[at] = length.clone();
        Some(made)
    };
    Ok(lengths.iter().take(parts).map(part).collect())
}

/// As many parts of the same length; the last may be shorter.
fn equal_parts(length: &Length, parts: usize, symbols: &mut Symbols) -> Vec<Length> {
    let count = parts.max(1) as i64;
    if let Length::Value(length) = length {
        let length = i64::from(*length);
        let each = (length + count - 1) / count;
        return (0..count).map(|at| symbols.of(each.min((length - at * each).max(0)))).collect();
    }
    let count = symbols.of(count);
    vec![symbols.div(length, &count); parts]
}

/// `Slice`: starts, ends, axes and steps are inputs, or attributes before opset 10.
pub(crate) fn slice(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    // ends beyond all lengths are common
    let clamped = |number: &i64| Length::Value((*number).clamp(i32::MIN.into(), i32::MAX.into()) as i32);
    let ends = |at: usize, name: &str| match view.has(at) {
        true => view.ints(at).map(|ints| ints.iter().map(clamped).collect()).or_else(|| view.lengths(at)),
        false => view.node.ints(name).map(|ints| ints.iter().map(clamped).collect::<Vec<Length>>()),
    };
    let (starts, stops) = (ends(1, "starts"), ends(2, "ends"));
    let count = starts.as_ref().or(stops.as_ref()).map(Vec::len).or_else(|| length_of(view, 1)).or_else(|| length_of(view, 2));
    let Some(count) = count else { return Ok(vec![Some(symbols.some(shape.len()))]) };
    let given = |at: usize, name: &str, default: Vec<i64>| match view.has(at) {
        true => view.ints(at),
        false => Some(view.node.ints(name).map_or(default, <[i64]>::to_vec)),
    };
    let Some(numbers) = given(3, "axes", (0..count as i64).collect()) else { return Ok(vec![Some(symbols.some(shape.len()))]) };
    let steps = given(4, "steps", vec![1; count]);
    let axes = axes(&numbers, shape.len())?;
    let fits = |list: Option<usize>| list.is_none_or(|length| length == axes.len());
    if ![starts.as_ref().map(Vec::len), stops.as_ref().map(Vec::len), steps.as_ref().map(Vec::len)].into_iter().all(fits) {
        return Err(format!("has {count} starts for {} axes", axes.len()));
    }
    let mut made = shape.to_vec();
    for (place, at) in axes.into_iter().enumerate() {
        let of = |list: &Option<Vec<Length>>| list.as_ref().map(|list| list[place].clone());
        let known = of(&starts).zip(of(&stops)).zip(steps.as_ref().map(|steps| steps[place]));
        made[at] = match known {
            Some((_, 0)) => return Err("has a step of 0".into()),
            Some(((start, stop), step)) => sliced(&made[at], &start, &stop, step, symbols),
            None => symbols.fresh(),
        };
    }
    Ok(vec![Some(made)])
}

/// The length of a slice. It begins within its axis, as far as the lengths are not known.
fn sliced(length: &Length, start: &Length, stop: &Length, step: i64, symbols: &mut Symbols) -> Length {
    const END: Length = Length::Value(i32::MAX);
    match (length, start, stop) {
        (Length::Value(length), Length::Value(start), Length::Value(stop)) => {
            symbols.of(taken((*length).into(), (*start).into(), (*stop).into(), step))
        }
        (_, Length::Value(-1), Length::Value(stop)) if step == -1 && *stop <= -i32::MAX => length.clone(),
        _ if step < 1 => symbols.fresh(),
        (_, Length::Value(start), Length::Value(stop)) => {
            let (from, to) = (i64::from(*start), i64::from(*stop));
            let taken = match (from >= 0, to >= 0) {
                (true, true) if *stop == i32::MAX || stop > &(i32::MAX - 1) => {
                    let from = symbols.of(from);
                    symbols.sub(length, &from)
                }
                (true, true) if to <= from => return Length::Value(0),
                (true, true) => {
                    let (from, to) = (symbols.of(from), symbols.of(to));
                    let end = symbols.min(length, &to);
                    symbols.sub(&end, &from)
                }
                (true, false) => {
                    let less = symbols.of(from - to);
                    symbols.sub(length, &less)
                }
                // the last ones; the very last is there
                (false, true) if *stop == i32::MAX && from == -1 => Length::Value(1),
                (false, true) if *stop == i32::MAX => {
                    let most = symbols.of(-from);
                    symbols.min(length, &most)
                }
                _ => symbols.fresh(),
            };
            let step = symbols.of(step);
            symbols.div_ceil(&taken, &step)
        }
        (_, start, stop) if start.is_positive() && (stop.is_positive() || *stop == END) => {
            let end = if *stop == END || stop == length { length.clone() } else { symbols.min(stop, length) };
            let taken = symbols.sub(&end, start);
            let step = symbols.of(step);
            symbols.div_ceil(&taken, &step)
        }
        _ => symbols.fresh(),
    }
}

/// `Pad`: an input, or an attribute before opset 11.
pub(crate) fn pad(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let pads = match view.has(1) {
        true => view.lengths(1),
        false => view
            .node
            .ints("pads")
            .or_else(|| view.node.ints("paddings"))
            .map(|pads| pads.iter().map(|number| symbols.of(*number)).collect()),
    };
    let numbers = if view.has(3) { view.ints(3) } else { Some((0..shape.len() as i64).collect()) };
    let (Some(pads), Some(numbers)) = (pads, numbers) else { return Ok(vec![Some(symbols.some(shape.len()))]) };
    let axes = axes(&numbers, shape.len())?;
    if pads.len() != 2 * axes.len() {
        return Err(format!("has {} pads for {} axes", pads.len(), axes.len()));
    }
    let mut made = shape.to_vec();
    for (place, at) in axes.iter().enumerate() {
        let added = symbols.add(&pads[place], &pads[place + axes.len()]);
        made[*at] = symbols.add(&made[*at], &added);
    }
    Ok(vec![Some(made)])
}

/// `Resize`, and `Upsample` before it.
pub(crate) fn resize(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let is_old = view.node.operator == "Upsample" || view.node.version < 11;
    let (scales_at, sizes_at) = if is_old { (1, usize::MAX) } else { (2, 3) };
    let axes = match view.node.ints("axes") {
        Some(given) => axes(given, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    let mut made = shape.to_vec();
    let is_given = |at: usize| view.has(at) && view.shape(at) != Some(&[Length::Value(0)]);
    if is_given(sizes_at) {
        let is_plain = view.node.word("keep_aspect_ratio_policy").is_none_or(|policy| policy == "stretch");
        let sizes = view.lengths(sizes_at).filter(|_| is_plain);
        if let Some(wrong) = sizes.as_ref().filter(|sizes| sizes.len() != axes.len()) {
            return Err(format!("has {} sizes for {} axes", wrong.len(), axes.len()));
        }
        for (place, at) in axes.iter().enumerate() {
            made[*at] = match &sizes {
                Some(sizes) => positive(sizes[place].clone(), symbols),
                None => symbols.fresh(),
            };
        }
        return Ok(vec![Some(made)]);
    }
    let attribute = || view.node.floats("scales").map(|scales| scales.iter().map(|x| f64::from(*x)).collect());
    let scales: Option<Vec<f64>> = if is_given(scales_at) { view.floats(scales_at) } else { attribute() };
    let scales = scales.filter(|scales| !scales.is_empty());
    if let Some(wrong) = scales.as_ref().filter(|scales| scales.len() != axes.len()) {
        return Err(format!("has {} scales for {} axes", wrong.len(), axes.len()));
    }
    for (place, at) in axes.iter().enumerate() {
        made[*at] = match (scales.as_ref().map(|scales| scales[place]), &made[*at]) {
            (Some(scale), Length::Value(length)) => symbols.of((f64::from(*length) * scale).floor() as i64),
            (Some(scale), length) if scale.fract() == 0.0 && (1.0..1e6).contains(&scale) => {
                let (length, scale) = (length.clone(), symbols.of(scale as i64));
                symbols.mul(&length, &scale)
            }
            _ => symbols.fresh(),
        };
    }
    Ok(vec![Some(made)])
}

/// `TopK`: the count is an input, or an attribute before opset 10.
pub(crate) fn top_k(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![]) };
    let at = view.axis(-1, shape.len())?;
    let given = if view.has(1) { view.lengths(1) } else { view.node.int("k").map(|count| vec![symbols.of(count)]) };
    let mut made = shape.to_vec();
    made[at] = match given.as_deref() {
        Some([count]) => positive(count.clone(), symbols),
        _ => symbols.fresh(),
    };
    Ok(vec![Some(made.clone()), Some(made)])
}

/// `OneHot`.
pub(crate) fn one_hot(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(indices) = view.required(0)? else { return Ok(vec![None]) };
    let at = axis(view.node.int("axis").unwrap_or(-1), indices.len() + 1)?;
    let depth = match view.required(1).map(|_| view.lengths(1))?.as_deref() {
        Some([depth]) => positive(depth.clone(), symbols),
        _ => symbols.fresh(),
    };
    let mut made = indices.to_vec();
    made.insert(at, depth);
    Ok(vec![Some(made)])
}

/// `NonZero`: a column for each element that is found.
pub(crate) fn non_zero(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let rank = view.required(0)?.map_or_else(|| symbols.fresh(), |shape| Length::Value(shape.len() as i32));
    Ok(vec![Some(vec![rank, symbols.fresh()])])
}

/// `Compress`: as many elements as the condition has.
pub(crate) fn compress(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(at) = view.node.int("axis") else { return Ok(vec![Some(symbols.some(1))]) };
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let mut made = shape.to_vec();
    made[axis(at, shape.len())?] = symbols.fresh();
    Ok(vec![Some(made)])
}

/// `Shape`: a vector with a number for each axis.
pub(crate) fn shape_of(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let rank = match view.required(0)? {
        Some(shape) => symbols.of(range_of(view, shape.len()).len() as i64),
        None => symbols.fresh(),
    };
    Ok(vec![Some(vec![rank])])
}

/// The axes that `Shape` tells of.
pub(crate) fn range_of(view: &View<'_>, rank: usize) -> std::ops::Range<usize> {
    let place = |number: i64| {
        let from_start = if number < 0 { number.saturating_add(rank as i64) } else { number };
        from_start.clamp(0, rank as i64) as usize
    };
    let start = view.node.int("start").map_or(0, place);
    start..view.node.int("end").map_or(rank, place).max(start)
}

/// A scalar.
pub(crate) fn scalar(_: &View<'_>, _: &mut Symbols) -> Shapes {
    Ok(vec![Some(vec![])])
}

/// `Unique`: vectors, but for the first output along an axis.
pub(crate) fn unique(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let mut first = Some(symbols.some(1));
    if let Some(at) = view.node.int("axis") {
        first = view.required(0)?.map(<[Length]>::to_vec);
        if let Some(shape) = &mut first {
            let at = axis(at, shape.len())?;
            shape[at] = symbols.fresh();
        }
    }
    Ok(vec![first, Some(symbols.some(1)), Some(symbols.some(1)), Some(symbols.some(1))])
}

/// `ConstantOfShape`, and what else is told its shape by its first input.
pub(crate) fn of_shape(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    view.required(0)?;
    let shape: Shape = match view.lengths(0) {
        Some(lengths) => Some(lengths.into_iter().map(|length| positive(length, symbols)).collect()),
        None => length_of(view, 0).map(|rank| symbols.some(rank)),
    };
    Ok(vec![shape])
}

/// `RandomNormal` and its kin: the attribute.
pub(crate) fn of_attribute(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    Ok(vec![view.node.ints("shape").map(|shape| shape.iter().map(|length| symbols.of(*length)).collect())])
}

/// `Range`.
pub(crate) fn range(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let end = |at: usize| view.required(at).map(|_| view.lengths(at).and_then(|lengths| lengths.into_iter().next()));
    let (Some(start), Some(limit), Some(step)) = (end(0)?, end(1)?, end(2)?) else {
        return Ok(vec![Some(symbols.some(1))]);
    };
    if step == Length::Value(0) {
        return Err("has a step of 0".into());
    }
    let length = match (&start, &limit, &step) {
        (Length::Value(start), Length::Value(limit), Length::Value(step)) => {
            let (span, step) = (i64::from(*limit) - i64::from(*start), i64::from(*step));
            let (span, step) = if step < 0 { (-span, -step) } else { (span, step) };
            symbols.of(if span <= 0 { 0 } else { (span - 1) / step + 1 })
        }
        (_, _, Length::Value(1)) => symbols.sub(&limit, &start),
        (_, _, Length::Value(2..)) => {
            let span = symbols.sub(&limit, &start);
            symbols.div_ceil(&span, &step)
        }
        _ => symbols.fresh(),
    };
    Ok(vec![Some(vec![positive(length, symbols)])])
}
