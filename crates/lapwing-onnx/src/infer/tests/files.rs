//! Models as exporters write them.

use std::path::{Path, PathBuf};

use super::build::{input, ints, model, node};
use crate::OnnxFile;
use crate::messages::StringStringEntryProto;
use crate::ports::GraphPorts;
use crate::shaped::{KnownValue, Length};
use crate::tensor::Datatype;

fn plans() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "onnx"));
    files.sort();
    files
}

#[test]
fn every_shape_type_and_product_is_known() {
    let files = plans();
    assert!(files.len() > 10, "{files:?}");
    for path in files {
        let file = OnnxFile::read(&path).unwrap();
        let graph = file.graph().unwrap();
        for node in &graph.nodes {
            for fact in node.outputs.iter().flatten().map(|id| graph.tensor(*id)) {
                let shape = fact.shape.as_ref().unwrap_or_else(|| panic!("{}: {node:?}", path.display()));
                let is_named =
                    |length: &Length| length.iter().all(|part| !matches!(part, Length::Var(symbol) if symbol.synthetic));
                assert!(shape.iter().all(is_named) && fact.datatype.is_some(), "{}: {node:?} makes {fact:?}", path.display());
            }
        }
        let work = graph.work(&graph.input_shapes(2, 5).unwrap()).unwrap();
        assert!(work.uncounted.is_empty() && work.flops > 0, "{}: {work:?}", path.display());
        // twice the rows: twice the products
        let rows = graph.inputs.first().and_then(|id| graph.tensor(*id).shape.as_ref()?.first().cloned());
        let times = if matches!(rows, Some(Length::Value(_))) { 1 } else { 2 };
        assert_eq!(graph.flops(4, 5), Some(times * work.flops), "{}", path.display());
    }
}

/// As a plan counts them: `2·m·n·k` of a product, `4·Σs²·d` of attention.
#[test]
fn an_encoder_is_counted_as_its_plan_is() {
    let path = plans().into_iter().find(|path| path.ends_with("0001.onnx")).unwrap();
    let graph = OnnxFile::read(&path).unwrap().graph().unwrap();
    let (rows, tokens, width, inner) = (2, 2 * 5, 16, 37);
    let layer = 4 * 2 * tokens * width * width + 2 * (2 * tokens * width * inner) + 4 * (rows * 5 * 5) * width;
    assert_eq!(graph.flops(2, 5), Some(2 * layer + 2 * rows * width * 5));
}

#[test]
fn weights_may_lie_beside_the_file() {
    let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
    let mut outside = ints("w", &[2], &[]);
    outside.data_location = Some(1);
    outside.external_data = vec![entry("location", "w.bin"), entry("offset", "8"), entry("length", "16")];
    let made = model(17, &[input("x: n 4")], &[outside], &[node("y = Reshape x w", &[])]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    std::fs::write(&path, prost::Message::encode_to_vec(&made)).unwrap();
    let shapes = [0_i64, -1, 2].iter().flat_map(|length| length.to_le_bytes()).collect::<Vec<u8>>();
    std::fs::write(folder.path().join("w.bin"), &shapes).unwrap();
    let graph = OnnxFile::read(&path).unwrap().graph().unwrap();
    let shape = graph.tensor(graph.outputs[0]).shape.as_ref().unwrap();
    assert_eq!(shape.iter().map(ToString::to_string).collect::<Vec<_>>(), ["2 * n", "2"]);
    // it was there when the file was checked, and is shorter now
    let file = OnnxFile::read(&path).unwrap();
    std::fs::write(folder.path().join("w.bin"), &shapes[..20]).unwrap();
    assert_eq!(file.graph().unwrap_err().to_string(), "initializer w: needs 16 bytes from 8 on of \"w.bin\", which has 20");
}

#[test]
fn ports_are_as_the_file_and_the_nodes_have_them() {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/digits/digits.onnx");
    let graph = OnnxFile::read(&digits).unwrap().graph().unwrap();
    let ports = GraphPorts::of(&graph).unwrap();
    let shown = |spec: &crate::tensor::TensorSpec| (spec.name.clone(), spec.datatype, spec.shape.clone());
    assert_eq!(ports.inputs.iter().map(shown).collect::<Vec<_>>().len(), graph.inputs.len());
    assert!(ports.inputs.iter().all(|port| port.datatype == Datatype::Fp32 && port.shape.len() > 1), "{ports:?}");
    assert!(
        ports.outputs.iter().all(|port| port.shape.last().is_some_and(Option::is_some)) && ports.unranked.is_empty(),
        "{ports:?}"
    );
    assert!(graph.tensors.iter().any(|fact| matches!(fact.value, KnownValue::Constant(_))) && graph.parameters > 1000);
}
