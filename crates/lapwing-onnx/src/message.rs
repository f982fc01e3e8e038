//! What a user is told of tract's errors: the node, its operator and operator set, and the reason, on a line.
//!
//! tract's texts nest from the outside in, one `Failed analyse for node #12 "name" Operator: ` for each subgraph and phase, and end
//! with the rule that failed.

use crate::messages::{GraphProto, ModelProto, NodeProto};

use crate::EngineError;

/// The most characters of a reason.
const LONGEST: usize = 240;

/// The error for tract's text.
pub(crate) fn explain(error: &str, proto: &ModelProto) -> EngineError {
    let Some((name, rest)) = innermost_node(error) else {
        return EngineError::part("graph", short(error));
    };
    let node = proto.graph.as_ref().and_then(|graph| find(graph, name));
    let operator = node.map(|node| operator(node, proto));
    let part = operator.map_or_else(|| format!("node {name}"), |operator| format!("node {name} ({operator})"));
    let is_missing = rest.starts_with("Unimplemented(") || rest.contains("Operator can not be made a TypedOp");
    let rest = rest.split_once(": ").map_or(rest, |(_, reason)| reason);
    let reason = if is_missing {
        "tract does not have this operator".to_owned()
    } else {
        format!("tract cannot take it: {}", short(rest))
    };
    EngineError::part(part, reason)
}

/// A panic's error. Valid files can cause one too.
pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> EngineError {
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
    let text = text.map_or_else(String::new, |text| format!(": {}", short(text)));
    EngineError::part("graph", format!("tract panicked while it read the model{text}"))
}

/// The name of the last node that an error tells of, and what follows the name.
fn innermost_node(error: &str) -> Option<(&str, &str)> {
    let at = error.rfind("node #")?;
    let (_, named) = error[at..].split_once('"')?;
    let (name, rest) = named.split_once('"')?;
    Some((name, rest.trim_start()))
}

fn find<'g>(graph: &'g GraphProto, name: &str) -> Option<&'g NodeProto> {
    let is_it =
        |node: &&NodeProto| node.name == name || (node.name.is_empty() && node.output.first().is_some_and(|made| made == name));
    graph.node.iter().find(is_it).or_else(|| {
        let attributes = graph.node.iter().flat_map(|node| &node.attribute);
        attributes.flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs)).find_map(|graph| {
            // tract puts the names of the outer nodes before those of a subgraph
            find(graph, name).or_else(|| graph.node.iter().find(|node| !node.name.is_empty() && name.ends_with(&node.name)))
        })
    })
}

/// `LSTM, opset 17`, or with its domain `com.microsoft.DynamicQuantizeLSTM, version 1`.
fn operator(node: &NodeProto, proto: &ModelProto) -> String {
    let is_standard = matches!(node.domain.as_str(), "" | "ai.onnx");
    let of_domain = |set: &str| if is_standard { matches!(set, "" | "ai.onnx") } else { set == node.domain };
    let version = proto.opset_import.iter().find(|set| of_domain(&set.domain)).map(|set| set.version);
    match (is_standard, version) {
        (true, Some(version)) => format!("{}, opset {version}", node.op_type),
        (false, Some(version)) => format!("{}.{}, version {version}", node.domain, node.op_type),
        (true, None) => node.op_type.clone(),
        (false, None) => format!("{}.{}", node.domain, node.op_type),
    }
}

/// A text on one line, cut at a word.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((end, _)) = line.char_indices().nth(LONGEST) else { return line };
    let end = line[..end].rfind(' ').unwrap_or(end);
    format!("{} …", &line[..end])
}

#[cfg(test)]
mod tests {
    use crate::messages::{AttributeProto, OperatorSetIdProto};

    use super::*;

    fn model() -> ModelProto {
        let node = |name: &str, op_type: &str, domain: &str| NodeProto {
            name: name.into(),
            op_type: op_type.into(),
            domain: domain.into(),
            output: vec![format!("{name}_made")],
            ..Default::default()
        };
        let branch = GraphProto { node: vec![node("decoder/Squeeze", "Squeeze", "")], ..Default::default() };
        let attribute = vec![AttributeProto { g: Some(branch), ..Default::default() }];
        let outer = NodeProto { attribute, ..node("If_0", "If", "") };
        let unnamed = NodeProto { name: String::new(), ..node("au", "Concat", "") };
        let set = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
        let node = vec![
            outer,
            node("LSTM_quant", "DynamicQuantizeLSTM", "com.microsoft"),
            node("Y", "TreeEnsemble", "ai.onnx.ml"),
            unnamed,
        ];
        let graph = Some(GraphProto { node, ..Default::default() });
        ModelProto { graph, opset_import: vec![set("", 16), set("com.microsoft", 1)], ..Default::default() }
    }

    #[test]
    fn the_innermost_node_is_named_with_its_operator() {
        for (error, message) in [
            (
                "Failed analyse for node #366 \"LSTM_quant\" Unimplemented(DynamicQuantizeLSTM): Wrong number of outputs. Op says 1, node says 3.",
                "node LSTM_quant (com.microsoft.DynamicQuantizeLSTM, version 1): tract does not have this operator",
            ),
            (
                "Translating node #1 \"Y\" Unimplemented(TreeEnsemble) ToTypedTranslator: Operator can not be made a TypedOp.",
                "node Y (ai.onnx.ml.TreeEnsemble): tract does not have this operator",
            ),
            (
                "Failed analyse for node #5 \"If_0\" If: Infering facts: Failed analyse for node #1 \"If_0_then_branch_decoder/Squeeze\" Squeeze13: \
                 Infering facts: Attempt to squeeze\nan axis",
                "node If_0_then_branch_decoder/Squeeze (Squeeze, opset 16): tract cannot take it: Infering facts: Attempt to squeeze an axis",
            ),
            (
                "Failed analyse for node #3 \"au_made\" InferenceConcat: no",
                "node au_made (Concat, opset 16): tract cannot take it: no",
            ),
            ("Translating node #3 \"gone\" Tile: no", "node gone: tract cannot take it: no"),
            ("no such thing", "graph: no such thing"),
        ] {
            assert_eq!(explain(error, &model()).to_string(), message);
        }
    }

    #[test]
    fn a_long_reason_is_cut() {
        let error = format!("Translating node #3 \"au_made\" Concat: {}", "shäpe ".repeat(1000));
        let message = explain(&error, &model()).to_string();
        assert!(message.chars().count() < 330 && message.ends_with(" …"), "{message}");
        let message = explain(&"ä".repeat(1000), &model()).to_string();
        assert!(message.chars().count() < 330, "{message}");
    }

    #[test]
    fn a_panic_says_what_tract_said() {
        let text = panicked(&String::from("index out of bounds")).to_string();
        assert_eq!(text, "graph: tract panicked while it read the model: index out of bounds");
        assert_eq!(panicked(&"no").to_string(), "graph: tract panicked while it read the model: no");
        assert_eq!(panicked(&7).to_string(), "graph: tract panicked while it read the model");
    }
}
