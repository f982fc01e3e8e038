//! Small pipelines by hand: what a column is turned into, and which outputs are made.

use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::{ModelProto, NodeProto};
use lapwing_onnx::tensor::{Datatype, Tensor, text_data};

use crate::{TabularModel, TabularState};
use lapwing_testing::onnx::{classical, f32s, float, floats, general, i64s, int, ints, model, port, strings, tensor, word};

fn numbers(node: NodeProto, x: &[f32], shape: &[usize]) -> Vec<f32> {
    let proto = model(vec![port("x", DataType::Float, &[0, shape[1] as i64])], vec![node], &["y"], vec![]);
    let model = TabularModel::from_proto(&proto).unwrap();
    model.run(&mut TabularState::default(), &[Tensor::f32("x", shape, x)], &[true]).unwrap()[0].to_f32()
}

#[test]
fn columns_are_scaled_imputed_normalised_and_cut() {
    let one = |operator, attributes| classical(operator, &["x"], &["y"], attributes);
    let scaled = numbers(one("Scaler", vec![floats("offset", &[1.0, 2.0]), floats("scale", &[2.0, 0.5])]), &[2.0, 6.0], &[1, 2]);
    assert_eq!(scaled, [2.0, 2.0]);
    let attributes = vec![floats("imputed_value_floats", &[7.0, 8.0]), float("replaced_value_float", f32::NAN)];
    assert_eq!(numbers(one("Imputer", attributes), &[f32::NAN, 1.0, 2.0, f32::NAN], &[2, 2]), [7.0, 1.0, 2.0, 8.0]);
    for (norm, wanted) in
        [("MAX", [1.0, -4.0 / 3.0, 0.0, 0.0]), ("L1", [3.0 / 7.0, -4.0 / 7.0, 0.0, 0.0]), ("L2", [0.6, -0.8, 0.0, 0.0])]
    {
        let got = numbers(one("Normalizer", vec![word("norm", norm)]), &[3.0, -4.0, 0.0, 0.0], &[2, 2]);
        assert_eq!(got, wanted, "{norm}");
    }
    assert_eq!(numbers(one("Binarizer", vec![float("threshold", 0.5)]), &[0.5, 0.6], &[1, 2]), [0.0, 1.0]);
    assert_eq!(numbers(one("Binarizer", vec![]), &[0.0, 0.1], &[1, 2]), [0.0, 1.0]);
}

/// Country and amount: one is encoded, both are joined, and a linear classifier with a `ZipMap` behind it reads them.
fn columns() -> ModelProto {
    let inputs = vec![port("country", DataType::String, &[0, 1]), port("amount", DataType::Float, &[0, 1])];
    let linear = vec![
        floats("coefficients", &[0.0, 0.0, -1.0, 1.0, -1.0, 1.0]),
        floats("intercepts", &[0.0, 0.5]),
        strings("classlabels_strings", &["ok", "fraud"]),
        word("post_transform", "SOFTMAX"),
    ];
    let nodes = vec![
        classical("OneHotEncoder", &["country"], &["hot"], vec![strings("cats_strings", &["de", "fr"])]),
        general("Reshape", &["hot", "shape"], &["flat"], vec![]),
        general("Concat", &["flat", "amount"], &["all"], vec![int("axis", 1)]),
        classical("LinearClassifier", &["all"], &["label", "scores"], linear),
        classical("ZipMap", &["scores"], &["map"], vec![strings("classlabels_strings", &["ok", "fraud"])]),
    ];
    model(inputs, nodes, &["label", "map"], vec![i64s("shape", &[2], &[-1, 2])])
}

#[test]
fn strings_go_in_and_out_and_maps_are_matrices() {
    let model = TabularModel::from_proto(&columns()).unwrap();
    let spec = |at: usize| (model.outputs()[at].name.as_str(), model.outputs()[at].datatype, model.outputs()[at].shape.clone());
    assert_eq!(spec(0), ("label", Datatype::Bytes, vec![None]));
    assert_eq!(spec(1), ("map", Datatype::Fp32, vec![None, Some(2)]));
    let country =
        Tensor { name: "country".into(), datatype: Datatype::Bytes, shape: vec![3, 1], data: text_data(&["de", "fr", "xx"]) };
    let inputs = [country, Tensor::f32("amount", &[3, 1], &[1.0, -2.0, 0.0])];
    let mut state = TabularState::default();
    let got = model.run(&mut state, &inputs, &[true, true]).unwrap();
    assert_eq!(got[0].data, text_data(&["fraud", "ok", "fraud"]));
    let sums: Vec<f32> = got[1].to_f32().chunks(2).map(|row| row[0] + row[1]).collect();
    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-6), "{sums:?}");
    let only = model.run(&mut state, &inputs, &[false, true]).unwrap();
    assert_eq!((only.len(), &only[0]), (1, &got[1]));
}

#[test]
fn encoders_map_every_type() {
    let encode = |kind, attributes: Vec<_>, x: Tensor| {
        let node = classical("LabelEncoder", &["x"], &["y"], attributes);
        let mut proto = model(vec![port("x", kind, &[0, 1])], vec![node], &["y"], vec![]);
        proto.opset_import[1].version = 4;
        TabularModel::from_proto(&proto).unwrap().run(&mut TabularState::default(), &[x], &[true]).unwrap().remove(0)
    };
    let keys = floats("keys_floats", &[0.5, f32::NAN, 0.0]);
    let got = encode(
        DataType::Float,
        vec![keys, ints("values_int64s", &[5, 6, 7])],
        Tensor::f32("x", &[4, 1], &[f32::NAN, 0.5, 1.0, -0.0]),
    );
    assert_eq!(got, Tensor::i64("y", &[4, 1], &[6, 5, -1, 7]));
    let got = encode(
        DataType::Int64,
        vec![ints("keys_int64s", &[1, 1]), strings("values_strings", &["a", "b"])],
        Tensor::i64("x", &[2, 1], &[1, 2]),
    );
    assert_eq!((got.datatype, got.data), (Datatype::Bytes, text_data(&["a", "_Unused"])));
    let tensors = vec![
        tensor("keys_tensor", i64s("", &[1], &[9])),
        tensor("values_tensor", f32s("", &[1], &[2.5])),
        tensor("default_tensor", f32s("", &[1], &[-1.5])),
    ];
    assert_eq!(encode(DataType::Int64, tensors, Tensor::i64("x", &[2, 1], &[9, 8])).to_f32(), [2.5, -1.5]);
}

#[test]
fn an_unknown_category_is_an_error_where_the_file_says_so() {
    let node = classical("OneHotEncoder", &["x"], &["y"], vec![ints("cats_int64s", &[3, 5]), int("zeros", 0)]);
    let proto = model(vec![port("x", DataType::Int64, &[0, 1])], vec![node], &["y"], vec![]);
    let model = TabularModel::from_proto(&proto).unwrap();
    let mut state = TabularState::default();
    assert_eq!(model.run(&mut state, &[Tensor::i64("x", &[1, 1], &[5])], &[true]).unwrap()[0].to_f32(), [0.0, 1.0]);
    let error = model.run(&mut state, &[Tensor::i64("x", &[2, 1], &[3, 4])], &[true]).unwrap_err();
    assert_eq!(error.to_string(), "model: cannot run: y (OneHotEncoder): element 1 is of an unknown category");
}
