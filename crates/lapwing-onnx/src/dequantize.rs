//! Writes the `DequantizeLinear` of an activation as what it computes: `(x - zero_point) * scale`.
//!
//! tract puts a table of 256 entries in the place of what stands between a `DequantizeLinear` and the `QuantizeLinear` behind it, for
//! every operator that keeps its axes. Softmax and norms keep them too, but read the whole row: the table has the wrong numbers. So it
//! has where one side is INT8 and the other UINT8.

use std::collections::HashMap;

use crate::messages::attribute_proto::AttributeType;
use crate::messages::{AttributeProto, GraphProto, NodeProto, TensorProto};

/// Replaces each `DequantizeLinear` whose input is no weight and whose scale is one constant. One per axis stays: tract makes no table
/// of it.
pub(crate) fn spell_out(graph: &mut GraphProto) {
    let weights: HashMap<String, Constant> =
        graph.initializer.iter().map(|tensor| (tensor.name.clone(), Constant::of(tensor))).collect();
    let made = graph.node.iter().filter(|node| node.op_type == "Constant").filter_map(|node| {
        let tensor = node.attribute.iter().find_map(|attribute| attribute.t.as_ref())?;
        Some((node.output.first()?.clone(), Constant::of(tensor)))
    });
    let constants: HashMap<String, Constant> = made.chain(weights).collect();
    for mut node in std::mem::take(&mut graph.node) {
        node.attribute.iter_mut().flat_map(|attribute| attribute.g.iter_mut().chain(&mut attribute.graphs)).for_each(spell_out);
        match spelled(&node, &constants) {
            Some(nodes) => graph.node.extend(nodes),
            None => graph.node.push(node),
        }
    }
}

/// What has to be known of a constant.
struct Constant {
    data_type: i32,
    is_one: bool,
}

impl Constant {
    fn of(tensor: &TensorProto) -> Self {
        Self { data_type: tensor.data_type, is_one: tensor.dims.iter().all(|length| *length == 1) }
    }
}

fn spelled(node: &NodeProto, constants: &HashMap<String, Constant>) -> Option<Vec<NodeProto>> {
    let (input, scale) = (node.input.first()?, node.input.get(1)?);
    let output = node.output.first()?;
    let scale_is = constants.get(scale).filter(|constant| constant.is_one)?;
    if node.op_type != "DequantizeLinear" || !matches!(node.domain.as_str(), "" | "ai.onnx") || constants.contains_key(input) {
        return None;
    }
    let name = if node.name.is_empty() { output } else { &node.name };
    let part = |kind: &str, of: &str, reads: &[&str], makes: &str| NodeProto {
        name: format!("{name}/{of}"),
        op_type: kind.to_owned(),
        input: reads.iter().map(ToString::to_string).collect(),
        output: vec![makes.to_owned()],
        ..Default::default()
    };
    let to = AttributeProto {
        name: "to".into(),
        r#type: AttributeType::Int as i32,
        i: scale_is.data_type.into(),
        ..Default::default()
    };
    let cast =
        |of: &str, reads: &str, makes: &str| NodeProto { attribute: vec![to.clone()], ..part("Cast", of, &[reads], makes) };
    let number = format!("{output}/number");
    let mut nodes = vec![cast("cast", input, &number)];
    let mut from = number;
    if let Some(zero_point) = node.input.get(2).filter(|name| !name.is_empty()) {
        let (zero, above) = (format!("{output}/zero_point"), format!("{output}/above"));
        nodes.extend([cast("zero_point", zero_point, &zero), part("Sub", "subtract", &[&from, &zero], &above)]);
        from = above;
    }
    // the last has the node's own name, by which it may be asked for
    nodes.push(NodeProto { name: node.name.clone(), ..part("Mul", "scale", &[&from, scale], output) });
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dequantize(input: &str, scale: &str) -> NodeProto {
        let input = [input, scale, "zero"].map(str::to_owned).to_vec();
        NodeProto { name: "d".into(), op_type: "DequantizeLinear".into(), input, output: vec!["y".into()], ..Default::default() }
    }

    fn kinds(node: NodeProto) -> Vec<String> {
        let constant = |name: &str, data_type, dims: &[i64]| TensorProto {
            name: name.into(),
            data_type,
            dims: dims.to_vec(),
            ..Default::default()
        };
        let initializer =
            vec![constant("one", 1, &[]), constant("each", 1, &[4]), constant("zero", 2, &[]), constant("weight", 2, &[4])];
        let mut graph = GraphProto { node: vec![node], initializer, ..Default::default() };
        spell_out(&mut graph);
        graph
            .node
            .into_iter()
            .map(|node| format!("{} {} -> {}", node.op_type, node.input.join(","), node.output.join(",")))
            .collect()
    }

    #[test]
    fn an_activation_is_dequantized_by_arithmetic() {
        let spelled =
            ["Cast x -> y/number", "Cast zero -> y/zero_point", "Sub y/number,y/zero_point -> y/above", "Mul y/above,one -> y"];
        assert_eq!(kinds(dequantize("x", "one")), spelled);
        let mut without_zero = dequantize("x", "one");
        without_zero.input.truncate(2);
        assert_eq!(kinds(without_zero), ["Cast x -> y/number", "Mul y/number,one -> y"]);
    }

    #[test]
    fn weights_and_scales_for_each_channel_stay() {
        for (input, scale) in [("weight", "one"), ("x", "each"), ("x", "computed")] {
            assert_eq!(kinds(dequantize(input, scale)), [format!("DequantizeLinear {input},{scale},zero -> y")]);
        }
        let other = NodeProto { domain: "com.example".into(), ..dequantize("x", "one") };
        assert_eq!(kinds(other), ["DequantizeLinear x,one,zero -> y"]);
        let short = NodeProto { input: vec!["x".into()], ..dequantize("x", "one") };
        assert_eq!(kinds(short), ["DequantizeLinear x -> y"]);
    }
}
