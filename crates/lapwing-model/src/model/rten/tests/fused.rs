//! Nodes that ONNX Runtime makes of several, and random numbers.

use super::{FLOAT, answer, answered, file, floats, int, load, node, port, word};
use lapwing_onnx::messages::attribute_proto::AttributeType;
use lapwing_onnx::messages::{AttributeProto, NodeProto};
use lapwing_onnx::tensor::Tensor;

fn numbers(name: &str, values: &[f32]) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: AttributeType::Floats as i32, floats: values.to_vec(), ..Default::default() }
}

fn microsoft(kind: &str, reads: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto { domain: "com.microsoft".into(), ..node(kind, reads, attribute) }
}

#[test]
fn fused_nodes_are_written_as_what_they_fuse() {
    let x = || vec![Tensor::f32("x", &[1, 1, 1, 4], &[1.0, -2.0, 3.0, -4.0])];
    // the kernel's shape is that of its weights; the sum comes before the activation
    let cases = [
        ("Relu", vec![], [3.0, 0.0, 7.0, 0.0]),
        ("LeakyRelu", vec![0.5], [3.0, -1.5, 7.0, -3.5]),
        ("Clip", vec![-1.0, 4.0], [3.0, -1.0, 4.0, -1.0]),
        ("HardSigmoid", vec![0.125, 0.5], [0.875, 0.125, 1.0, 0.0]),
    ];
    for (kind, parameters, want) in cases {
        let attributes = vec![word("activation", kind), numbers("activation_params", &parameters), word("auto_pad", "VALID")];
        let conv = microsoft("FusedConv", &["x", "w", "b", "x"], attributes);
        let constants = vec![floats("w", &[1, 1, 1, 1], &[1.0]), floats("b", &[1], &[1.0])];
        let bytes = file(17, conv, vec![port("x", FLOAT, &[0, 1, 1, 4])], constants, FLOAT);
        assert_eq!(answered(&bytes, x()).to_f32(), want, "{kind}");
    }
    let alpha =
        AttributeProto { name: "activation_alpha".into(), r#type: AttributeType::Float as i32, f: 0.25, ..Default::default() };
    let gemm = microsoft("FusedGemm", &["x", "w", "b"], vec![word("activation", "LeakyRelu"), alpha, int("transB", 1)]);
    let constants = vec![floats("w", &[2, 2], &[1.0, 2.0, -1.0, -2.0]), floats("b", &[2], &[0.0, 1.0])];
    let bytes = file(17, gemm, vec![port("x", FLOAT, &[0, 2])], constants, FLOAT);
    assert_eq!(answered(&bytes, vec![Tensor::f32("x", &[1, 2], &[1.0, 2.0])]).to_f32(), [5.0, -1.0]);
    // one that is not known is named by its own operator
    let conv = microsoft("FusedConv", &["x", "x"], vec![word("activation", "Softmax")]);
    let error = load(&file(17, conv, vec![port("x", FLOAT, &[0, 1, 1, 1])], vec![], FLOAT)).unwrap_err();
    assert!(error.starts_with("node the_FusedConv (FusedConv, com.microsoft"), "{error}");
}

#[test]
fn random_numbers_are_drawn_as_the_node_says() {
    let reals = [("mean", 5.0), ("scale", 0.25)].map(|(name, f)| AttributeProto {
        name: name.into(),
        r#type: AttributeType::Float as i32,
        f,
        ..Default::default()
    });
    let bytes = file(17, node("RandomNormalLike", &["x"], reals.to_vec()), vec![port("x", FLOAT, &[0, 4000])], vec![], FLOAT);
    let model = load(&bytes).unwrap();
    let drawn = || answer(&model, vec![Tensor::f32("x", &[1, 4000], &[0.0; 4000])]).unwrap().to_f32();
    let (first, second) = (drawn(), drawn());
    assert_ne!(first, second);
    let mean = first.iter().sum::<f32>() / 4000.0;
    let deviation = (first.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 4000.0).sqrt();
    // eight standard errors
    assert!((mean - 5.0).abs() < 0.032 && (deviation - 0.25).abs() < 0.024, "{mean} {deviation}");
}
