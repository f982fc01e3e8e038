//! Nodes that ONNX Runtime makes of several, and random numbers.

use super::{FLOAT, answer, answered, file, load, node};
use lapwing_onnx::messages::{AttributeProto, NodeProto};
use lapwing_onnx::tensor::Tensor;
use lapwing_testing::onnx::{f32s, float, floats, int, port, word};

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
        let attributes = vec![word("activation", kind), floats("activation_params", &parameters), word("auto_pad", "VALID")];
        let conv = microsoft("FusedConv", &["x", "w", "b", "x"], attributes);
        let constants = vec![f32s("w", &[1, 1, 1, 1], &[1.0]), f32s("b", &[1], &[1.0])];
        let bytes = file(17, conv, vec![port("x", FLOAT, &[0, 1, 1, 4])], constants, FLOAT);
        assert_eq!(answered(&bytes, x()).to_f32(), want, "{kind}");
    }
    let alpha = float("activation_alpha", 0.25);
    let gemm = microsoft("FusedGemm", &["x", "w", "b"], vec![word("activation", "LeakyRelu"), alpha, int("transB", 1)]);
    let constants = vec![f32s("w", &[2, 2], &[1.0, 2.0, -1.0, -2.0]), f32s("b", &[2], &[0.0, 1.0])];
    let bytes = file(17, gemm, vec![port("x", FLOAT, &[0, 2])], constants, FLOAT);
    assert_eq!(answered(&bytes, vec![Tensor::f32("x", &[1, 2], &[1.0, 2.0])]).to_f32(), [5.0, -1.0]);
    // one that is not known is named by its own operator
    let conv = microsoft("FusedConv", &["x", "x"], vec![word("activation", "Softmax")]);
    let error = load(&file(17, conv, vec![port("x", FLOAT, &[0, 1, 1, 1])], vec![], FLOAT)).unwrap_err();
    assert!(error.starts_with("node the_FusedConv (FusedConv, com.microsoft"), "{error}");
}

#[test]
fn random_numbers_are_drawn_as_the_node_says() {
    let reals = vec![float("mean", 5.0), float("scale", 0.25)];
    let bytes = file(17, node("RandomNormalLike", &["x"], reals), vec![port("x", FLOAT, &[0, 4000])], vec![], FLOAT);
    let model = load(&bytes).unwrap();
    let drawn = || answer(&model, vec![Tensor::f32("x", &[1, 4000], &[0.0; 4000])]).unwrap().to_f32();
    let (first, second) = (drawn(), drawn());
    assert_ne!(first, second);
    let mean = first.iter().sum::<f32>() / 4000.0;
    let deviation = (first.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 4000.0).sqrt();
    // eight standard errors
    assert!((mean - 5.0).abs() < 0.032 && (deviation - 0.25).abs() < 0.024, "{mean} {deviation}");
}
