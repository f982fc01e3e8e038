//! Nodes that ONNX Runtime makes of several when it writes a file that it has optimised: written as those again.

use super::known::{attribute, text};
use super::nodes::{Nodes, made, real, scalar};
use lapwing_onnx::messages::{AttributeProto, NodeProto};

/// The nodes that a fused one stands for; `None` if it is none of these, or its activation is not known here.
///
/// `FusedConv` adds its fourth input before the activation. Both operators are those of ONNX Runtime's `ContribOperators.md`.
pub(crate) fn parts(node: &NodeProto) -> Option<Nodes> {
    let (kind, inputs) = match (node.domain.as_str(), node.op_type.as_str()) {
        ("com.microsoft", "FusedConv") => ("Conv", 3),
        ("com.microsoft", "FusedGemm") => ("Gemm", 3),
        _ => return None,
    };
    let output = node.output.first()?;
    let (product, sum) = (format!("{output}/product"), format!("{output}/sum"));
    let reads: Vec<&str> = node.input.iter().take(inputs).map(String::as_str).collect();
    let attribute = node.attribute.iter().filter(|attribute| !attribute.name.starts_with("activation")).cloned().collect();
    let mut nodes = vec![NodeProto { attribute, ..made(kind, node, "product", &reads, &product) }];
    let added = node.input.get(inputs).filter(|name| !name.is_empty());
    if let Some(added) = added {
        nodes.push(made("Add", node, "sum", &[&product, added], &sum));
    }
    activation(node, if added.is_some() { &sum } else { &product }, output, &mut nodes)?;
    Some(nodes)
}

/// The activation of a fused node, which has its name and makes its output.
fn activation(node: &NodeProto, from: &str, to: &str, into: &mut Nodes) -> Option<()> {
    let kind = text(node, "activation").filter(|kind| !kind.is_empty()).unwrap_or("Identity");
    // a convolution has them in a list, a product by their names
    let list: &[f32] = attribute(node, "activation_params").map_or(&[], |attribute| &attribute.floats);
    let parameter = |at: usize, name: &str| list.get(at).copied().or_else(|| Some(attribute(node, name)?.f));
    let named = |at: usize, name: &str| Some(real(name, parameter(at, &format!("activation_{name}"))?));
    let attributes: Vec<AttributeProto> = match kind {
        "Identity" | "Relu" | "Tanh" | "Sigmoid" => Vec::new(),
        "LeakyRelu" | "Elu" => named(0, "alpha").into_iter().collect(),
        "HardSigmoid" => [named(0, "alpha"), named(1, "beta")].into_iter().flatten().collect(),
        "Clip" => {
            let &[least, most] = list else { return None };
            let [least_at, most_at] = ["least", "most"].map(|what| format!("{to}/{what}"));
            into.extend([scalar(node, "least", least, &least_at), scalar(node, "most", most, &most_at)]);
            into.push(made(kind, node, "", &[from, &least_at, &most_at], to));
            return Some(());
        }
        _ => return None,
    };
    into.push(NodeProto { attribute: attributes, ..made(kind, node, "", &[from], to) });
    Some(())
}
