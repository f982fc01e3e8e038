//! Models as exporters write them.

use std::path::{Path, PathBuf};

use crate::OnnxFile;
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
        let graph = file.shaped().unwrap();
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

#[test]
fn ports_are_as_the_file_and_the_nodes_have_them() {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/digits/digits.onnx");
    let graph = OnnxFile::read(&digits).unwrap().shaped().unwrap();
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
