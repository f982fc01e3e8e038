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

#[test]
fn scratch_random() {
    let dir = "/work/scratch-gen/out";
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().filter_map(|e| e.ok()?.file_name().into_string().ok()).filter(|n| n.ends_with(".onnx")).collect();
    names.sort();
    let (mut good, mut bad) = (0, 0);
    for name in names {
        let path = format!("{dir}/{name}");
        let base = path.trim_end_matches(".onnx");
        let meta: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(format!("{base}.json")).unwrap()).unwrap();
        let say = |what: String| eprintln!("{name} {what} {}", meta["what"]);
        let model = match tract_onnx::onnx().model_for_path(&path).and_then(|m| m.into_typed()).and_then(|m| m.into_decluttered()) {
            Ok(model) => model,
            Err(e) => { say(format!("TRACT {e:#}")); bad += 1; continue }
        };
        let mut plan = match lower::lower(&model) {
            Ok(plan) => plan,
            Err(e) => { say(format!("REFUSED {e}")); bad += 1; continue }
        };
        plan.check().unwrap();
        let raw = plan.clone();
        fuse::fuse(&mut plan);
        plan.check().unwrap();
        let read = |which: &str, name: &str| -> Vec<f64> {
            let bytes = std::fs::read(format!("{base}.{name}.bin")).unwrap();
            match meta[which][name]["dtype"].as_str().unwrap() {
                "float32" => bytes.chunks(4).map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap()))).collect(),
                "int64" => bytes.chunks(8).map(|c| i64::from_le_bytes(c.try_into().unwrap()) as f64).collect(),
                other => panic!("{other}"),
            }
        };
        let inputs: Vec<_> = plan.inputs.iter().map(|port| read("inputs", &port.name)).collect();
        let shape: Vec<u64> = meta["inputs"][&plan.inputs[0].name]["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
        let lengths = vec![if plan.has_tokens() { shape[1] as usize } else { 1 }; shape[0] as usize];
        let mut worst: f64 = 0.0;
        for plan in [&raw, &plan] {
            let got = naive::run(plan, &lengths, &inputs);
            for (port, got) in plan.outputs.iter().zip(&got) {
                let expected = read("outputs", &port.name);
                assert_eq!(expected.len(), got.len(), "{name} {}", port.name);
                for (e, g) in expected.iter().zip(got) {
                    let off = (e - g).abs() / (1.0 + e.abs());
                    worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
                }
            }
        }
        let mut far = 0.0_f64;
        for level in super::cpu::level::Level::available() {
            let executor = super::cpu::Executor::for_level(plan.clone(), level).unwrap();
            let floats: Vec<Vec<f32>> = inputs.iter().map(|i| i.iter().map(|x| *x as f32).collect()).collect();
            let wholes: Vec<Vec<i64>> = inputs.iter().map(|i| i.iter().map(|x| *x as i64).collect()).collect();
            let given: Vec<_> = executor.plan().inputs.iter().enumerate().map(|(at, port)| match executor.plan().value(port.value).kind {
                Type::F32 => super::cpu::Input::F32(&floats[at]),
                _ => super::cpu::Input::I64(&wholes[at]),
            }).collect();
            let mut offsets = vec![0];
            for length in &lengths { offsets.push(offsets.last().unwrap() + length); }
            let (mut state, mut out) = (super::cpu::State::default(), Vec::new());
            for _ in 0..2 {
                executor.run(&mut state, &super::cpu::Batch { offsets: &offsets, inputs: &given }, &mut out).unwrap();
            }
            for (port, got) in plan.outputs.iter().zip(&out) {
                let expected = read("outputs", &port.name);
                assert_eq!(expected.len(), got.len(), "{name} {}", port.name);
                for (e, g) in expected.iter().zip(got) {
                    let off = (e - f64::from(*g)).abs() / (1.0 + e.abs());
                    far = if off.is_nan() { f64::INFINITY } else { far.max(off) };
                }
            }
        }
        if far > 1e-5 { say(format!("FAR {far:e} naive {worst:e}")); bad += 1; }
        if worst > 2e-5 { say(format!("WRONG {worst:e}")); bad += 1; } else {
            let maps = plan.nodes.iter().filter(|n| n.op.name() == "map").count();
            say(format!("ok {worst:.1e} {} -> {} ({maps} maps)", raw.nodes.len(), plan.nodes.len()));
            good += 1;
        }
    }
    eprintln!("good {good} bad {bad}");
}
