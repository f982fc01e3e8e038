//! Lowered plans against tract, on models given by path: scratch until the fixtures are in the tree.

use tract_onnx::prelude::*;

use super::plan::{Plan, Rows, Size, Type};
use super::{fuse, lower, naive};

fn load(path: &str) -> TypedModel {
    tract_onnx::onnx().model_for_path(path).unwrap().into_typed().unwrap().into_decluttered().unwrap()
}

fn compare(path: &str, batch: usize, length: usize) {
    let model = load(path);
    let mut plan = lower::lower(&model).unwrap();
    plan.check().unwrap();
    let raw = plan.clone();
    fuse::fuse(&mut plan);
    plan.check().unwrap();
    eprintln!("{plan}");
    eprintln!("{:?} parameters {} nodes {} -> {}", plan.total(Size::uniform(batch, length)), plan.parameters(), raw.nodes.len(), plan.nodes.len());
    let mut seed = 7_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as f64 / f64::from(1_u32 << 31)
    };
    let inputs: Vec<Vec<f64>> = plan
        .inputs
        .iter()
        .map(|port| {
            let value = plan.value(port.value);
            let rows = if value.rows == Rows::Token { batch * length } else { batch };
            let is_ids = port.name == "input_ids";
            (0..rows * value.width)
                .map(|_| match value.kind {
                    Type::F32 => random() * 2.0 - 1.0,
                    _ if is_ids => (random() * 1000.0).floor(),
                    _ => (random() * 1.7).floor(),
                })
                .collect()
        })
        .collect();
    let tensors: TVec<TValue> = plan
        .inputs
        .iter()
        .zip(&inputs)
        .map(|(port, data)| {
            let value = plan.value(port.value);
            let mut shape = vec![batch];
            if value.rows == Rows::Token {
                shape.push(length);
            }
            shape.extend(&port.features);
            let tensor = match value.kind {
                Type::F32 => Tensor::from_shape(&shape, &data.iter().map(|x| *x as f32).collect::<Vec<_>>()).unwrap(),
                _ => Tensor::from_shape(&shape, &data.iter().map(|x| *x as i64).collect::<Vec<_>>()).unwrap(),
            };
            tensor.into()
        })
        .collect();
    let expected = model.into_optimized().unwrap().into_runnable().unwrap().run(tensors).unwrap();
    for plan in [&raw, &plan] {
        let got = naive::run(plan, &vec![length; batch], &inputs);
        for ((port, expected), got) in plan.outputs.iter().zip(&expected).zip(&got) {
            let expected: Vec<f32> = expected.to_plain_array_view::<f32>().unwrap().iter().copied().collect();
            assert_eq!(expected.len(), got.len(), "{}", port.name);
            let worst = expected.iter().zip(got).map(|(e, g)| (f64::from(*e) - g).abs() / (1.0 + g.abs())).fold(0.0, f64::max);
            eprintln!("{}: {worst:e}", port.name);
            assert!(worst < 1e-5, "{}: {worst}", port.name);
        }
    }
}

#[test]
fn scratch_mlp() {
    compare("/work/models/mlp.onnx", 3, 1);
}

#[test]
fn scratch_minilm() {
    compare("/work/models/minilm17.onnx", 2, 5);
}

#[test]
fn scratch_minilm_dec() {
    compare("/work/models/minilm_dec.onnx", 2, 5);
}

fn _unused(_: &Plan) {}
