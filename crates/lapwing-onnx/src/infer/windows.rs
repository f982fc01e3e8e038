//! Convolutions and pooling: operators that move a window over the axes behind rows and channels.

use super::lengths::{Symbols, shown};
use crate::shaped::Length;
use crate::view::{Reason, Shape, Shapes, View};

/// How a window moves, for each axis.
struct Window {
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pads: Padding,
}

enum Padding {
    /// As many outputs as inputs for each stride.
    Same,
    /// Before and behind each axis.
    Fixed(Vec<(i64, i64)>),
}

impl Window {
    fn of(view: &View<'_>, axes: usize) -> Result<Self, Reason> {
        let (strides, dilations) = (view.sizes("strides", axes, 1)?, view.sizes("dilations", axes, 1)?);
        if strides.contains(&0) {
            return Err("has a stride of 0".into());
        }
        let pads = match view.node.word("auto_pad").unwrap_or("NOTSET") {
            "SAME_UPPER" | "SAME_LOWER" => Padding::Same,
            "VALID" => Padding::Fixed(vec![(0, 0); axes]),
            _ => {
                let given = view.node.ints("pads").map_or_else(|| vec![0; 2 * axes], <[i64]>::to_vec);
                let is_small = given.iter().all(|pad| i32::try_from(*pad).is_ok());
                if given.len() != 2 * axes || !is_small {
                    return Err(format!("has the pads {given:?} for {axes} axes"));
                }
                Padding::Fixed((0..axes).map(|axis| (given[axis], given[axis + axes])).collect())
            }
        };
        Ok(Self { strides, dilations, pads })
    }

    /// The length behind a window of `kernel` over `length`.
    fn over(
        &self,
        axis: usize,
        length: &Length,
        kernel: &Length,
        is_ceil: bool,
        symbols: &mut Symbols,
    ) -> Result<Length, Reason> {
        let stride = self.strides[axis];
        let step = symbols.of(stride);
        let Padding::Fixed(pads) = &self.pads else { return Ok(symbols.div_ceil(length, &step)) };
        let (before, behind) = pads[axis];
        let Length::Value(kernel) = kernel else { return Ok(symbols.fresh()) };
        let window = self.dilations[axis] * (i64::from(*kernel) - 1) + 1;
        // what is left when the window stands at the start
        let padded = before + behind - window;
        if let Length::Value(length) = length {
            let length = i64::from(*length);
            let left = length + padded;
            if left < 0 {
                return Err(format!("its window of {window} is larger than the padded length {}", left + window));
            }
            let mut places = left / stride + 1;
            // the last one may go beyond the end, but begins before it
            if is_ceil && left % stride != 0 && places * stride < length + before {
                places += 1;
            }
            return Ok(symbols.of(places));
        }
        let padded = symbols.of(padded);
        let left = symbols.add(length, &padded);
        let one = Length::Value(1);
        if stride == 1 {
            return Ok(symbols.add(&left, &one));
        }
        let places = if is_ceil { symbols.div_ceil(&left, &step) } else { symbols.div(&left, &step) };
        let places = symbols.add(&places, &one);
        if !is_ceil {
            return Ok(places);
        }
        let first = symbols.of(before - 1);
        let last = symbols.add(length, &first);
        let most = symbols.div(&last, &step);
        let most = symbols.add(&most, &one);
        Ok(symbols.min(&places, &most))
    }
}

/// `Conv`, `ConvInteger`, `FusedConv`.
pub(crate) fn conv(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    conv_of(view, 1, symbols)
}

/// `QLinearConv`: each input is followed by its scale and its zero point.
pub(crate) fn quantised_conv(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    conv_of(view, 3, symbols)
}

fn conv_of(view: &View<'_>, weight_at: usize, symbols: &mut Symbols) -> Shapes {
    let (x, weight) = (view.required(0)?, view.required(weight_at)?);
    let rank = x.or(weight).map(<[Length]>::len);
    if view.node.int("channels_last").unwrap_or(0) != 0 {
        return Ok(vec![rank.map(|rank| symbols.some(rank))]);
    }
    let (Some(x), Some(weight)) = (x, weight) else { return Ok(vec![rank.map(|rank| symbols.some(rank))]) };
    let ([rows, channels, lengths @ ..], [made, each, kernel @ ..]) = (x, weight) else {
        return Err(format!("convolves the shape {} with {}", shown(x), shown(weight)));
    };
    if lengths.len() != kernel.len() {
        return Err(format!("convolves the shape {} with {}", shown(x), shown(weight)));
    }
    let groups = view.node.int("group").unwrap_or(1);
    if let (Length::Value(channels), Length::Value(each)) = (channels, each)
        && i64::from(*each).checked_mul(groups) != Some((*channels).into())
    {
        return Err(format!("convolves {channels} channels with {} in {groups} groups", shown(weight)));
    }
    let window = Window::of(view, lengths.len())?;
    let mut shape = vec![rows.clone(), made.clone()];
    for (axis, (length, kernel)) in lengths.iter().zip(kernel).enumerate() {
        shape.push(window.over(axis, length, kernel, false, symbols)?);
    }
    Ok(vec![Some(shape)])
}

/// `ConvTranspose`.
pub(crate) fn conv_transpose(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let (Some(x), Some(weight)) = (view.required(0)?, view.required(1)?) else { return Ok(vec![None]) };
    let fails = || format!("convolves the shape {} with {}", shown(x), shown(weight));
    let ([rows, channels, lengths @ ..], [own, each, kernel @ ..]) = (x, weight) else { return Err(fails()) };
    let differs = matches!((channels, own), (Length::Value(a), Length::Value(b)) if a != b);
    if lengths.len() != kernel.len() || differs {
        return Err(fails());
    }
    let window = Window::of(view, lengths.len())?;
    let added = view.sizes("output_padding", lengths.len(), 0)?;
    let groups = symbols.of(view.node.int("group").unwrap_or(1));
    let mut shape = vec![rows.clone(), symbols.mul(each, &groups)];
    let given = view.node.ints("output_shape").filter(|given| !given.is_empty());
    for (axis, (length, kernel)) in lengths.iter().zip(kernel).enumerate() {
        let stride = symbols.of(window.strides[axis]);
        shape.push(match (given, &window.pads, kernel) {
            (Some(given), ..) => {
                let behind = given.len().checked_sub(lengths.len()).ok_or("has an output_shape of too few axes")?;
                symbols.of(given[behind + axis])
            }
            (None, Padding::Same, _) => symbols.mul(length, &stride),
            (None, Padding::Fixed(pads), Length::Value(kernel)) => {
                // (length - 1) * stride + the window + what is added - what is cut off
                let (before, behind) = pads[axis];
                let reach = window.dilations[axis] * (i64::from(*kernel) - 1) + 1;
                let rest = symbols.of(reach + added[axis] - before - behind - window.strides[axis]);
                let steps = symbols.mul(length, &stride);
                symbols.add(&steps, &rest)
            }
            _ => symbols.fresh(),
        });
    }
    if shape.iter().any(|length| matches!(length, Length::Value(number) if *number < 0)) {
        return Err(format!("makes the shape {}", shown(&shape)));
    }
    Ok(vec![Some(shape)])
}

/// `MaxPool`, `AveragePool`, `LpPool`.
pub(crate) fn pool(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(x) = view.required(0)? else { return Ok(vec![]) };
    if view.node.int("channels_last").unwrap_or(0) != 0 {
        return Ok(vec![Some(symbols.some(x.len()))]);
    }
    let [rows, channels, lengths @ ..] = x else { return Err(format!("pools the shape {}", shown(x))) };
    let kernel = view.sizes("kernel_shape", lengths.len(), 0)?;
    if kernel.contains(&0) {
        return Err(format!("pools with a window of {kernel:?}"));
    }
    let window = Window::of(view, lengths.len())?;
    let is_ceil = view.node.int("ceil_mode").unwrap_or(0) != 0;
    let mut shape = vec![rows.clone(), channels.clone()];
    for (axis, (length, kernel)) in lengths.iter().zip(&kernel).enumerate() {
        let kernel = symbols.of(*kernel);
        shape.push(window.over(axis, length, &kernel, is_ceil, symbols)?);
    }
    Ok(vec![Some(shape.clone()), Some(shape)])
}

/// `GlobalAveragePool` and its kin.
pub(crate) fn global_pool(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(x) = view.required(0)? else { return Ok(vec![None]) };
    if view.node.int("channels_last").unwrap_or(0) != 0 {
        return Ok(vec![Some(symbols.some(x.len()))]);
    }
    Ok(vec![Some(x.iter().enumerate().map(|(at, length)| if at < 2 { length.clone() } else { Length::Value(1) }).collect())])
}

/// `GridSample`: rows and channels of the input, the other axes of the grid.
pub(crate) fn grid_sample(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let (Some(x), Some(grid)) = (view.required(0)?, view.required(1)?) else { return Ok(vec![None]) };
    let ([rows, channels, ..], [_, lengths @ .., _]) = (x, grid) else {
        return Err(format!("samples the shape {} at {}", shown(x), shown(grid)));
    };
    let _ = symbols;
    Ok(vec![Some([&[rows.clone(), channels.clone()], lengths].concat())])
}

/// `RoiAlign`: regions, channels, and the window of the attributes.
pub(crate) fn roi_align(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let length = |name: &str, symbols: &mut Symbols| symbols.of(view.node.int(name).unwrap_or(1));
    let channels = view.required(0)?.and_then(|x| x.get(1).cloned()).unwrap_or_else(|| symbols.fresh());
    let regions = view.required(1)?.and_then(|regions| regions.first().cloned()).unwrap_or_else(|| symbols.fresh());
    let shape: Shape = Some(vec![regions, channels, length("output_height", symbols), length("output_width", symbols)]);
    Ok(vec![shape])
}
