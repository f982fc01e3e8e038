//! Which nodes the engine's kernels compute: convolutions with constant weights, and what follows them.

use std::collections::HashMap;
use std::sync::Arc;

use lapwing_engine::cpu::conv::{Convolution, PoolKind, PoolingKernel, Windows};
use lapwing_engine::cpu::level::Level;
use lapwing_onnx::messages::NodeProto;

use super::super::known::{attribute, integer, is_onnx, text};
use super::constants::Constants;
use super::elementwise::{Elementwise, Operand};

/// What a node does with images.
#[derive(Debug)]
pub(crate) enum Role {
    Convolution(Arc<Convolution>),
    Pooling(PoolingKernel),
    /// The mean of each channel over all pixels.
    GlobalMean,
    /// Channels side by side.
    Concat,
    /// A transposition that makes the order of axes that images have: what it makes is a tensor of others.
    ChannelsLast,
    Elementwise(Elementwise),
}

/// What is known of an image before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// 3 or 4: its axes in ONNX, of which the first two are images and channels.
    pub(crate) rank: usize,
    pub(crate) channels: usize,
    /// Whether it has one pixel.
    pub(crate) is_pixel: bool,
}

/// A node that the engine's kernels compute.
#[derive(Debug)]
pub(crate) struct ImageNode {
    pub(crate) role: Role,
    /// The images that it reads, by the names of the nodes that make them.
    pub(crate) reads: Vec<String>,
    pub(crate) makes: Known,
}

/// What is known of a file's tensors so far.
#[derive(Debug)]
pub(crate) struct Recognition<'a> {
    pub(crate) constants: Constants,
    images: HashMap<&'a str, Known>,
    /// Other names of images.
    same: HashMap<&'a str, &'a str>,
    /// Nodes that pad with zeros, by what they make.
    padding: HashMap<&'a str, &'a NodeProto>,
}

/// Whether the parameters of a node are to be known.
pub(crate) fn has_parameters(node: &NodeProto) -> bool {
    const KINDS: [&str; 12] =
        ["Conv", "Pad", "Clip", "Pow", "PRelu", "BatchNormalization", "Add", "Sub", "Mul", "Div", "ReduceMean", "Gelu"];
    is_onnx(node) && KINDS.contains(&node.op_type.as_str())
}

impl<'a> Recognition<'a> {
    pub(crate) fn of(constants: Constants) -> Self {
        Self { constants, images: HashMap::new(), same: HashMap::new(), padding: HashMap::new() }
    }

    /// Reads the next node of the file; `None` if rten computes it.
    pub(crate) fn node(&mut self, node: &'a NodeProto) -> Option<ImageNode> {
        if !is_onnx(node) || self.constants.has(node.output.first()?) {
            return None;
        }
        let read = match node.op_type.as_str() {
            "Conv" => self.convolution(node),
            "MaxPool" | "AveragePool" => self.pooling(node),
            "GlobalAveragePool" | "ReduceMean" => self.global_mean(node),
            "Concat" => self.concat(node),
            "Transpose" => self.channels_last(node),
            "Identity" => {
                let image = self.image_name(node.input.first()?)?;
                self.same.insert(node.output.first()?, image);
                None
            }
            "Pad" => {
                self.padding.insert(node.output.first()?, node);
                None
            }
            _ => self.elementwise(node),
        };
        if let Some(read) = read.as_ref().filter(|read| !matches!(read.role, Role::ChannelsLast)) {
            self.images.insert(node.output.first()?, read.makes);
        }
        read
    }

    /// The image of a name.
    fn image_name(&self, name: &'a str) -> Option<&'a str> {
        let name = self.same.get(name).copied().unwrap_or(name);
        self.images.contains_key(name).then_some(name)
    }

    fn image(&self, name: &'a str) -> Option<(&'a str, Known)> {
        let name = self.image_name(name)?;
        Some((name, *self.images.get(name)?))
    }

    fn convolution(&self, node: &'a NodeProto) -> Option<ImageNode> {
        let (dims, weights) = self.constants.floats(node.input.get(1)?)?;
        let bias = node.input.get(2).filter(|name| !name.is_empty()).map(|name| self.constants.floats(name));
        let bias = bias.map_or(Some(Vec::new()), |bias| Some(bias?.1))?;
        let (rank, kernel) = (dims.len(), dims.get(2..)?);
        let groups = usize::try_from(integer(node, "group").unwrap_or(1)).ok()?;
        let mut windows = windows(node, kernel)?;
        let [outputs, each] = *dims.get(..2)? else { return None };
        let inputs = each.checked_mul(groups)?;
        let mut x: &str = node.input.first()?;
        if let Some(pads) = self.padding.get(x).and_then(|pad| self.pads(pad, rank)) {
            if text(node, "auto_pad").is_some_and(|kind| kind != "NOTSET") {
                return None;
            }
            x = self.padding.get(x)?.input.first()?;
            for (all, more) in windows.pads.iter_mut().zip(pads) {
                *all = all.checked_add(more)?;
            }
        }
        let x = self.same.get(x).copied().unwrap_or(x);
        let before = self.images.get(x);
        if before.is_some_and(|before| before.rank != rank || before.channels != inputs) {
            return None;
        }
        let convolution = Convolution::new(windows, [inputs, outputs], groups, &weights, &bias, Level::best()).ok()?;
        let is_pixel = before.is_some_and(|before| before.is_pixel) && windows.count([1, 1]) == Some([1, 1]);
        let makes = Known { rank, channels: outputs, is_pixel };
        Some(ImageNode { role: Role::Convolution(Arc::new(convolution)), reads: vec![x.to_owned()], makes })
    }

    /// What a node pads with zeros, if only pixels: above, left, below, right.
    fn pads(&self, node: &NodeProto, rank: usize) -> Option<[usize; 4]> {
        let is_given = |at: usize| node.input.get(at).is_some_and(|name| !name.is_empty());
        let is_zero = !is_given(2) || self.constants.number(node.input.get(2)?) == Some(0.0);
        if !matches!(text(node, "mode"), None | Some("constant")) || is_given(3) || !is_zero {
            return None;
        }
        let pads = self.constants.wholes(node.input.get(1)?)?;
        let pads: Vec<usize> = pads.into_iter().map(|pad| usize::try_from(pad).ok()).collect::<Option<_>>()?;
        match (rank, &pads[..]) {
            (4, &[0, 0, top, left, 0, 0, bottom, right]) => Some([top, left, bottom, right]),
            (3, &[0, 0, left, 0, 0, right]) => Some([0, left, 0, right]),
            _ => None,
        }
    }

    fn pooling(&self, node: &'a NodeProto) -> Option<ImageNode> {
        let (x, before) = self.image(node.input.first()?)?;
        let is_on = |name: &str| integer(node, name).unwrap_or(0) != 0;
        if is_on("ceil_mode") || is_on("storage_order") || node.output.len() != 1 {
            return None;
        }
        let kernel = lengths(node, "kernel_shape").filter(|kernel| kernel.len() + 2 == before.rank)?;
        let kind = match node.op_type.as_str() {
            "MaxPool" => PoolKind::Max,
            _ if is_on("count_include_pad") => PoolKind::MeanWithPadding,
            _ => PoolKind::Mean,
        };
        let pooling = PoolingKernel::new(windows(node, &kernel)?, kind, Level::best()).ok()?;
        let makes = Known { is_pixel: false, ..before };
        Some(ImageNode { role: Role::Pooling(pooling), reads: vec![x.to_owned()], makes })
    }

    fn global_mean(&self, node: &'a NodeProto) -> Option<ImageNode> {
        let (x, before) = self.image(node.input.first()?)?;
        if node.op_type == "ReduceMean" {
            let axes = match node.input.get(1) {
                Some(name) => self.constants.wholes(name)?.into_iter().map(i64::from).collect(),
                None => attribute(node, "axes")?.ints.clone(),
            };
            let rank = before.rank as i64;
            let mut axes: Vec<i64> = axes.into_iter().map(|axis| if axis < 0 { axis + rank } else { axis }).collect();
            axes.sort_unstable();
            if !axes.into_iter().eq(2..rank) || integer(node, "keepdims").unwrap_or(1) == 0 {
                return None;
            }
        }
        Some(ImageNode { role: Role::GlobalMean, reads: vec![x.to_owned()], makes: Known { is_pixel: true, ..before } })
    }

    fn concat(&self, node: &'a NodeProto) -> Option<ImageNode> {
        let all = node.input.iter().map(|name| self.image(name)).collect::<Option<Vec<_>>>()?;
        let (_, first) = *all.first()?;
        let axis = integer(node, "axis")?;
        let is_channels = axis == 1 || axis == 1 - first.rank as i64;
        if !is_channels || all.iter().any(|(_, image)| image.rank != first.rank || image.is_pixel != first.is_pixel) {
            return None;
        }
        let channels = all.iter().map(|(_, image)| image.channels).sum();
        let reads = all.iter().map(|(name, _)| (*name).to_owned()).collect();
        Some(ImageNode { role: Role::Concat, reads, makes: Known { channels, ..first } })
    }

    fn channels_last(&self, node: &'a NodeProto) -> Option<ImageNode> {
        let (x, makes) = self.image(node.input.first()?)?;
        let is_last = match attribute(node, "perm")?.ints[..] {
            [0, 2, 1] => makes.rank == 3,
            [0, 2, 3, 1] => makes.rank == 4,
            _ => false,
        };
        is_last.then(|| ImageNode { role: Role::ChannelsLast, reads: vec![x.to_owned()], makes })
    }

    fn elementwise(&self, node: &'a NodeProto) -> Option<ImageNode> {
        let images = || node.input.iter().filter_map(|name| self.image(name));
        let (_, first) = images().next()?;
        let alike = |(_, image): (&str, Known)| (image.rank, image.channels) == (first.rank, first.channels);
        if !images().all(alike) {
            return None;
        }
        let operand = |name: &str| {
            if let Some((name, _)) = node.input.iter().find(|input| *input == name).and_then(|input| self.image(input)) {
                return Some(Operand::Image(name.to_owned()));
            }
            let (dims, values) = self.constants.floats(name)?;
            // of the axes, which are aligned at their ends, only that of channels may be longer than 1
            let others = |(at, length): (usize, &usize)| *length == 1 || at + 1 == first.rank - 1;
            let fits = dims.len() <= first.rank && dims.iter().rev().enumerate().all(others);
            (fits && [1, first.channels].contains(&values.len())).then(|| Operand::Constant(values.into()))
        };
        let read = Elementwise::read(node, &self.constants, operand)?;
        let fits = |operand: &Operand| match operand {
            Operand::Image(_) => true,
            Operand::Constant(row) => row.len() == 1 || row.len() == first.channels,
        };
        if !read.operands.iter().all(fits) {
            return None;
        }
        let reads = read.operands.iter().filter_map(|operand| match operand {
            Operand::Image(name) => Some(name.clone()),
            Operand::Constant(_) => None,
        });
        let makes = Known { is_pixel: images().all(|(_, image)| image.is_pixel), ..first };
        Some(ImageNode { reads: reads.collect(), makes, role: Role::Elementwise(read) })
    }
}

fn lengths(node: &NodeProto, name: &str) -> Option<Vec<usize>> {
    attribute(node, name)?.ints.iter().map(|length| usize::try_from(*length).ok()).collect()
}

/// A node's windows, of one or two axes; `None` if its attributes do not fit them, or depend on the image.
fn windows(node: &NodeProto, kernel: &[usize]) -> Option<Windows> {
    let given = |name: &str, default: usize, count: usize| match attribute(node, name) {
        Some(attribute) if !attribute.ints.is_empty() => lengths(node, name).filter(|lengths| lengths.len() == count),
        _ => Some(vec![default; count]),
    };
    let axes = kernel.len();
    let (strides, dilations, mut pads) = (given("strides", 1, axes)?, given("dilations", 1, axes)?, given("pads", 0, 2 * axes)?);
    if given("kernel_shape", 0, axes)? != kernel && attribute(node, "kernel_shape").is_some() {
        return None;
    }
    match text(node, "auto_pad") {
        None | Some("NOTSET") => {}
        Some("SAME_UPPER") if strides.iter().all(|stride| *stride == 1) => {
            for axis in 0..axes {
                let all = kernel[axis].checked_sub(1)?.checked_mul(dilations[axis])?;
                (pads[axis], pads[axes + axis]) = (all / 2, all - all / 2);
            }
        }
        Some(_) => return None,
    }
    // one axis is the columns of a single row
    let pair = |of: &[usize], first: usize| match *of {
        [column] => Some([first, column]),
        [row, column] => Some([row, column]),
        _ => None,
    };
    let [before, after] = [pair(pads.get(..axes)?, 0)?, pair(pads.get(axes..)?, 0)?];
    Some(Windows {
        kernel: pair(kernel, 1)?,
        strides: pair(&strides, 1)?,
        dilations: pair(&dilations, 1)?,
        pads: [before[0], before[1], after[0], after[1]],
    })
}
