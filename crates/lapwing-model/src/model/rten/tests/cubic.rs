//! `Resize` in the mode `cubic`: what can be seen by hand, and what ONNX Runtime computes.

use super::{FLOAT, answered, file, node};
#[cfg(feature = "onnxruntime")]
use lapwing_onnx::messages::NodeProto;
use lapwing_onnx::tensor::Tensor;
use lapwing_testing::onnx::{f32s, float, port, word};
#[cfg(feature = "onnxruntime")]
use lapwing_testing::onnx::{int, ints};

#[test]
fn what_is_a_plane_stays_one() {
    // with a = -1/2 a cubic convolution keeps what is linear where it does not reach beyond the ends
    let resize = node("Resize", &["x", "", "s"], vec![word("mode", "cubic"), float("cubic_coeff_a", -0.5)]);
    let scales = vec![f32s("s", &[4], &[1.0, 1.0, 2.0, 0.5])];
    let x: Vec<f32> = (0..8).flat_map(|row| (0..8).map(move |column| 2.0 * row as f32 + column as f32)).collect();
    let got = answered(
        &file(17, resize, vec![port("x", FLOAT, &[0, 1, 8, 8])], scales, FLOAT),
        vec![Tensor::f32("x", &[1, 1, 8, 8], &x)],
    );
    assert_eq!(got.shape, [1, 1, 16, 4]);
    let numbers = got.to_f32();
    for row in 4..12 {
        for column in 1..3 {
            let (y, x) = ((row as f32 + 0.5) / 2.0 - 0.5, (column as f32 + 0.5) * 2.0 - 0.5);
            let number = numbers[row * 4 + column];
            assert!((number - (2.0 * y + x)).abs() < 1e-4, "{row}, {column}: {number} is not {}", 2.0 * y + x);
        }
    }
}

#[cfg(feature = "onnxruntime")]
#[test]
fn numbers_are_those_of_onnxruntime() {
    use crate::choice::Backend;
    use crate::model::{Model, ModelOptions, Verification};
    use lapwing_engine::onnxruntime::Runtime;
    use lapwing_onnx::messages::{AttributeProto, ModelProto};
    use lapwing_testing::onnx::i64s;
    use prost::Message;

    let Some(folder) = lapwing_testing::onnxruntime() else { return };
    let runtime = Runtime::find(Some(&folder)).unwrap();
    let options =
        ModelOptions { backend: Backend::Rten, onnxruntime: Some(Ok(runtime)), verify: true, ..ModelOptions::default() };
    let cubic = |reads: &[&str], more: Vec<AttributeProto>| NodeProto {
        attribute: [vec![word("mode", "cubic")], more].concat(),
        ..node("Resize", reads, vec![])
    };
    // lengths that are stated, and lengths that calls choose
    let inputs = [&[0, 2, 5, 7][..], &[0, 3, 0, 0]];
    let mut compared = 0;
    for input in inputs {
        for mode in ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"] {
            for (outside, coefficient) in [(0, -0.75), (1, -0.5)] {
                for (height, width) in [(2.0, 1.7), (0.6, 3.0), (1.0, 0.2), (0.21, 1.0)] {
                    let attributes = vec![
                        word("coordinate_transformation_mode", mode),
                        int("exclude_outside", outside),
                        float("cubic_coeff_a", coefficient),
                    ];
                    let scales = vec![f32s("s", &[4], &[1.0, 1.0, height, width])];
                    let bytes = file(13, cubic(&["x", "", "s"], attributes), vec![port("x", FLOAT, input)], scales, FLOAT);
                    let model = Model::parse(&bytes, &options).map_err(|error| error.to_string());
                    let verification = model.map(|model| model.verification().clone());
                    assert_eq!(
                        verification,
                        Ok(Verification::Agrees { rows: vec![1, 7] }),
                        "{input:?} {mode} {outside} {coefficient} {height} {width}"
                    );
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 64);
    // lengths of the result, by their axes, and a table that is a constant
    let sizes = vec![i64s("n", &[2], &[9, 4])];
    let by_size = cubic(&["x", "", "", "n"], vec![ints("axes", &[2, 3]), float("cubic_coeff_a", -0.75)]);
    let table = vec![f32s("t", &[1, 2, 3, 3], &(0..18).map(|at| (at * at % 7) as f32).collect::<Vec<_>>())];
    let of_table = NodeProto { input: vec!["t".into(), String::new(), String::new(), "m".into()], ..cubic(&[], vec![]) };
    let of_table = NodeProto { output: vec!["r".into()], ..of_table };
    let resized = i64s("m", &[4], &[1, 2, 5, 7]);
    let by_size = file(18, by_size, vec![port("x", FLOAT, &[0, 2, 5, 7])], sizes, FLOAT);
    let mut added =
        ModelProto::decode(&*file(17, node("Add", &["x", "r"], vec![]), vec![port("x", FLOAT, &[0, 2, 5, 7])], table, FLOAT))
            .unwrap();
    if let Some(graph) = &mut added.graph {
        graph.initializer.push(resized);
        graph.node.insert(0, of_table);
    }
    for bytes in [by_size, added.encode_to_vec()] {
        let model = Model::parse(&bytes, &options).unwrap();
        assert_eq!(model.verification(), &Verification::Agrees { rows: vec![1, 7] });
    }
}
