//! Nodes that rten reads otherwise than ONNX says: written by others that it reads alike, or refused.

use super::known::{Known, attribute, floats, integer, is_onnx, text};
use super::nodes::{Nodes, Opset, constant, made, real, scalar, whole, wholes, wholes_of, word};
use super::{constants, cubic, fused, lengths, quantized};
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::{ModelProto, NodeProto, TensorProto};
use lapwing_onnx::{EngineError, operator_name};

/// Appends what rten is given for a node.
///
/// # Errors
///
/// [`EngineError::Model`] names the node that it would compute otherwise than ONNX says, and why.
pub(crate) fn node(mut node: NodeProto, known: &Known, opset: Opset, into: &mut Nodes) -> Result<(), EngineError> {
    if let Some(parts) = fused::parts(&node) {
        return parts.into_iter().try_for_each(|part| self::node(part, known, opset, into));
    }
    if quantized::node(&node, known, into).map_err(|reason| refused(&node, opset, reason))? {
        return Ok(());
    }
    if !is_onnx(&node) {
        into.push(node);
        return Ok(());
    }
    refuse(&node, known, opset)?;
    for attribute in node.attribute.iter_mut().filter(|attribute| matches!(attribute.name.as_str(), "to" | "dtype")) {
        attribute.i = i32::try_from(attribute.i).map_or(attribute.i, |kind| constants::held_as(kind).into());
    }
    for tensor in node.attribute.iter_mut().filter_map(|attribute| attribute.t.as_mut()) {
        constants::widen(tensor);
    }
    match node.op_type.as_str() {
        "Cast" if integer(&node, "to") == Some(DataType::Bool as i64) => truth(&node, known, into),
        "Dropout" if !is_used(&node, 1) && !is_training(&node, known) => {
            node.op_type = "Identity".to_owned();
            node.attribute.clear();
            node.input.truncate(1);
            node.output.truncate(1);
            into.push(node);
        }
        "Softmax" | "LogSoftmax" if opset.0 < 13 => flat(node, known, into),
        "Conv" | "ConvTranspose" | "ConvInteger" | "MaxPool" | "AveragePool" => {
            padded(&mut node);
            kernel_shape(&mut node, known);
            into.push(node);
        }
        "ArgMax" | "ArgMin" => first_index(node, opset, into),
        "MatMul" if node.input.get(1).and_then(|name| known.rank(name)) == Some(1) => by_vector(&node, opset, into),
        "ReduceMean" if integer(&node, "noop_with_empty_axes") == Some(1) && has_no_axes(&node, known) => {
            node.op_type = "Identity".to_owned();
            node.attribute.clear();
            node.input.truncate(1);
            into.push(node);
        }
        "Resize" if opset.0 == 10 => {
            node.input.insert(1, String::new());
            node.attribute.push(word("coordinate_transformation_mode", "asymmetric"));
            node.attribute.push(word("nearest_mode", "floor"));
            into.push(node);
        }
        "Resize" if text(&node, "mode") == Some("cubic") => {
            into.append(&mut cubic::nodes(&node, known).map_err(|reason| refused(&node, opset, reason))?);
        }
        "LSTM" | "GRU" if is_given(&node, lengths::LENGTHS) => {
            into.append(&mut lengths::nodes(&node, known, opset).map_err(|reason| refused(&node, opset, reason))?);
        }
        "QuantizeLinear" => bounded(node, known, into),
        "Selu" | "Mish" | "Celu" | "ThresholdedRelu" => composed(node, into),
        _ => into.push(node),
    }
    Ok(())
}

/// Makes the file's set one that has what [`node`] wrote.
pub(crate) fn raise_opset(proto: &mut ModelProto) {
    for set in proto.opset_import.iter_mut().filter(|set| matches!(set.domain.as_str(), "" | "ai.onnx") && set.version == 10) {
        set.version = 11;
    }
}

/// Refuses what rten takes for something else.
fn refuse(node: &NodeProto, known: &Known, opset: Opset) -> Result<(), EngineError> {
    let reason = match node.op_type.as_str() {
        "Resize" if opset.0 == 10 && !enlarges(node, known) => {
            "before set 11 it is not said which element is the nearest to another"
        }
        "GRU" if integer(node, "linear_before_reset").unwrap_or(0) == 0 => "rten has linear_before_reset = 1 alone",
        "Conv" | "ConvTranspose" | "ConvInteger" | "MaxPool" | "AveragePool"
            if text(node, "auto_pad") == Some("SAME_LOWER") && !is_symmetric(node, known) =>
        {
            "rten pads SAME_LOWER as SAME_UPPER"
        }
        "CastLike" if node.input.get(1).is_some_and(|like| known.is_truth(like)) => "rten's truths are whole numbers",
        _ => return Ok(()),
    };
    Err(refused(node, opset, reason))
}

/// Names a node that rten would compute otherwise.
fn refused(node: &NodeProto, opset: Opset, reason: &str) -> EngineError {
    let name = if node.name.is_empty() { node.output.first().map_or("", String::as_str) } else { &node.name };
    let version = if is_onnx(node) { Some(opset.0) } else { None };
    EngineError::part(format!("node {name} ({})", operator_name(node, version)), reason)
}

/// Whether the scales of a `Resize` are known to be at least 1, or it is linear.
fn enlarges(node: &NodeProto, known: &Known) -> bool {
    let scales = node.input.get(1).and_then(|name| known.constant_of(name));
    let are_large = scales.is_some_and(|scales| {
        let mut numbers = floats(scales).peekable();
        numbers.peek().is_some() && numbers.all(|scale| scale >= 1.0)
    });
    text(node, "mode") == Some("linear") || are_large
}

/// Whether a reduction has axes, and they are none.
fn has_no_axes(node: &NodeProto, known: &Known) -> bool {
    let axes = node.input.get(1).filter(|name| !name.is_empty());
    axes.is_none_or(|name| known.constant_of(name).is_some_and(|tensor| tensor.dims == [0]))
}

fn is_given(node: &NodeProto, at: usize) -> bool {
    node.input.get(at).is_some_and(|name| !name.is_empty())
}

fn is_used(node: &NodeProto, at: usize) -> bool {
    node.output.get(at).is_some_and(|name| !name.is_empty())
}

/// Whether the padding is the same at both ends: odd kernels at stride 1.
fn is_symmetric(node: &NodeProto, known: &Known) -> bool {
    let ones = |name: &str| attribute(node, name).is_none_or(|attribute| attribute.ints.iter().all(|x| *x == 1));
    let kernel = attribute(node, "kernel_shape").map(|attribute| attribute.ints.clone());
    let kernel = kernel.or_else(|| known.constant_of(node.input.get(1)?)?.dims.get(2..).map(<[i64]>::to_vec));
    ones("strides") && kernel.is_some_and(|kernel| kernel.iter().all(|length| length % 2 == 1))
}

/// Whether a `Dropout` may drop.
fn is_training(node: &NodeProto, known: &Known) -> bool {
    let Some(mode) = node.input.get(2).filter(|name| !name.is_empty()) else { return false };
    let is_false =
        |tensor: &TensorProto| tensor.raw_data.iter().all(|byte| *byte == 0) && tensor.int32_data.iter().all(|x| *x == 0);
    !known.constant_of(mode).is_some_and(is_false)
}

/// A cast to truths: rten keeps whole numbers, and cuts others.
fn truth(node: &NodeProto, known: &Known, into: &mut Nodes) {
    let (Some(input), Some(output)) = (node.input.first(), node.output.first()) else { return };
    if known.is_truth(input) {
        into.push(made("Identity", node, "", &[input], output));
        return;
    }
    let (number, zero, is_zero) = (format!("{output}/number"), format!("{output}/zero"), format!("{output}/is_zero"));
    into.push(NodeProto {
        attribute: vec![whole("to", DataType::Float as i64)],
        ..made("Cast", node, "number", &[input], &number)
    });
    into.push(scalar(node, "zero", 0.0, &zero));
    into.push(made("Equal", node, "is_zero", &[&number, &zero], &is_zero));
    into.push(made("Not", node, "", &[&is_zero], output));
}

/// Before set 13, `Softmax` was one of all axes from one on, and its axis 1 where none is given.
fn flat(mut node: NodeProto, known: &Known, into: &mut Nodes) {
    let (Some(input), Some(output)) = (node.input.first().cloned(), node.output.first().cloned()) else { return };
    let axis = integer(&node, "axis").unwrap_or(1);
    node.attribute.retain(|attribute| attribute.name != "axis");
    let rank = known.rank(&input).and_then(|rank| i64::try_from(rank).ok());
    if axis == -1 || rank.is_some_and(|rank| axis == rank - 1) {
        node.attribute.push(whole("axis", -1));
        into.push(node);
        return;
    }
    let (shape, rows, sums) = (format!("{output}/shape"), format!("{output}/rows"), format!("{output}/sums"));
    into.push(made("Shape", &node, "shape", &[&input], &shape));
    into.push(NodeProto { attribute: vec![whole("axis", axis)], ..made("Flatten", &node, "rows", &[&input], &rows) });
    let kind = node.op_type.clone();
    into.push(NodeProto { attribute: vec![whole("axis", -1)], ..made(&kind, &node, "sums", &[&rows], &sums) });
    into.push(made("Reshape", &node, "", &[&sums, &shape], &output));
}

/// `ArgMax` and `ArgMin`, which give the last of equal elements in rten: the first is what `TopK` puts first.
fn first_index(mut node: NodeProto, opset: Opset, into: &mut Nodes) {
    if integer(&node, "select_last_index").unwrap_or(0) != 0 {
        node.attribute.retain(|attribute| attribute.name != "select_last_index");
        into.push(node);
        return;
    }
    let (Some(input), Some(output)) = (node.input.first(), node.output.first()) else { return };
    let axis = integer(&node, "axis").unwrap_or(0);
    let keeps = integer(&node, "keepdims").unwrap_or(1) != 0;
    let (one, largest, index) = (format!("{output}/one"), format!("{output}/element"), format!("{output}/index"));
    into.push(constant(&node, "one", wholes_of(&[1]), &one));
    let attribute = vec![whole("axis", axis), whole("largest", i64::from(node.op_type == "ArgMax"))];
    let index = if keeps { output.clone() } else { index };
    let top = made("TopK", &node, if keeps { "" } else { "top" }, &[input, &one], &largest);
    into.push(NodeProto { output: vec![largest, index.clone()], attribute, ..top });
    if !keeps {
        without_axis(&node, &index, axis, opset, into);
    }
}

/// A product of more than two axes with a vector, whose result keeps an axis in rten.
fn by_vector(node: &NodeProto, opset: Opset, into: &mut Nodes) {
    let ([matrix, vector], Some(output)) = (&node.input[..], node.output.first()) else { return };
    let (column, product) = (format!("{output}/column"), format!("{output}/product"));
    axes("Unsqueeze", (node, "column"), [vector, &column], 1, opset, into);
    into.push(made("MatMul", node, "product", &[matrix, &column], &product));
    without_axis(node, &product, -1, opset, into);
}

/// The last of a node's parts: without an axis of one element.
fn without_axis(node: &NodeProto, from: &str, axis: i64, opset: Opset, into: &mut Nodes) {
    let output = node.output.first().map_or("", String::as_str);
    axes("Squeeze", (node, ""), [from, output], axis, opset, into);
}

/// `Squeeze` or `Unsqueeze`, whose axes became an input with set 13.
fn axes(kind: &str, (node, part): (&NodeProto, &str), [reads, makes]: [&str; 2], axis: i64, opset: Opset, into: &mut Nodes) {
    if opset.0 < 13 {
        into.push(NodeProto { attribute: vec![wholes("axes", &[axis])], ..made(kind, node, part, &[reads], makes) });
        return;
    }
    let place = format!("{makes}/axes");
    into.push(constant(node, &format!("{part}/axes"), wholes_of(&[axis]), &place));
    into.push(made(kind, node, part, &[reads, &place], makes));
}

/// `QuantizeLinear` of what a call gives. rten rounds it to 32 bits before it ends at the limits of 8, so that infinities, and what is 2³¹
/// times the scale, would become 0. What nodes make of 8 bits is never that large.
fn bounded(mut node: NodeProto, known: &Known, into: &mut Nodes) {
    /// Above every type that is quantized to, and in 32 bits with any zero point.
    const MOST: f32 = 1_073_741_824.0;
    let Some(input) = node.input.first().filter(|input| known.is_given(input)) else { return into.push(node) };
    let scale = node.input.get(1).and_then(|name| known.constant_of(name));
    let least = scale.into_iter().flat_map(floats).filter(|scale| *scale > 0.0).reduce(f32::min);
    if let (Some(least), Some(output)) = (least, node.output.first()) {
        let part = |what: &str| format!("{output}/{what}");
        let most = (least * MOST).min(f32::MAX);
        into.push(scalar(&node, "least", -most, &part("least")));
        into.push(scalar(&node, "most", most, &part("most")));
        into.push(made("Clip", &node, "bounded", &[input, &part("least"), &part("most")], &part("bounded")));
        node.input[0] = part("bounded");
    }
    into.push(node);
}

/// `VALID` is no padding, whatever the padding is.
fn padded(node: &mut NodeProto) {
    if text(node, "auto_pad") == Some("VALID") {
        node.attribute.retain(|attribute| !matches!(attribute.name.as_str(), "auto_pad" | "pads"));
    }
    if text(node, "auto_pad") == Some("SAME_LOWER") {
        node.attribute.retain(|attribute| attribute.name != "auto_pad");
        node.attribute.push(word("auto_pad", "SAME_UPPER"));
    }
}

/// Convolutions may leave their kernel's shape to the weights.
fn kernel_shape(node: &mut NodeProto, known: &Known) {
    let weight = node.input.get(1);
    let dims = weight.and_then(|weight| known.constant_of(weight)).and_then(|tensor| tensor.dims.get(2..));
    if let Some(dims) = dims.filter(|_| attribute(node, "kernel_shape").is_none() && node.op_type.starts_with("Conv")) {
        node.attribute.push(wholes("kernel_shape", dims));
    }
}

/// Operators that rten does not have and others make.
fn composed(node: NodeProto, into: &mut Nodes) {
    let (Some(input), Some(output)) = (node.input.first().cloned(), node.output.first().cloned()) else { return };
    let number = |name: &str, default: f32| attribute(&node, name).map_or(default, |attribute| attribute.f);
    let part = |what: &str| format!("{output}/{what}");
    match node.op_type.as_str() {
        "Selu" => {
            let (alpha, gamma) = (number("alpha", 1.673_263_2), number("gamma", 1.050_701));
            into.push(NodeProto { attribute: vec![real("alpha", alpha)], ..made("Elu", &node, "elu", &[&input], &part("elu")) });
            into.push(scalar(&node, "gamma", gamma, &part("gamma")));
            into.push(made("Mul", &node, "", &[&part("elu"), &part("gamma")], &output));
        }
        "Celu" => {
            let alpha = number("alpha", 1.0);
            into.push(scalar(&node, "alpha", alpha, &part("alpha")));
            into.push(made("Div", &node, "divided", &[&input, &part("alpha")], &part("divided")));
            into.push(made("Elu", &node, "elu", &[&part("divided")], &part("elu")));
            into.push(made("Mul", &node, "", &[&part("elu"), &part("alpha")], &output));
        }
        "Mish" => {
            into.push(made("Softplus", &node, "softplus", &[&input], &part("softplus")));
            into.push(made("Tanh", &node, "tanh", &[&part("softplus")], &part("tanh")));
            into.push(made("Mul", &node, "", &[&input, &part("tanh")], &output));
        }
        "ThresholdedRelu" => {
            into.push(scalar(&node, "alpha", number("alpha", 1.0), &part("alpha")));
            into.push(scalar(&node, "zero", 0.0, &part("zero")));
            into.push(made("Greater", &node, "is_above", &[&input, &part("alpha")], &part("is_above")));
            into.push(made("Where", &node, "", &[&part("is_above"), &input, &part("zero")], &output));
        }
        _ => into.push(node),
    }
}
