//! Models that scikit-learn, LightGBM and XGBoost exported, and random ones of a few nodes, against what ONNX Runtime answered and what
//! the library predicted. `make_golden.py` makes the cases; `LAPWING_TABULAR_CASES` names a file of further random ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lapwing_onnx::messages::ModelProto;
use lapwing_onnx::tensor::{Datatype, Tensor};
use lapwing_tabular::{TabularModel, TabularState};
use prost::Message;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn tensors(case: &Value, list: &str) -> Vec<Tensor> {
    let tensor = |value: &Value| Tensor {
        name: value["name"].as_str().unwrap().to_owned(),
        datatype: Datatype::from_name(value["datatype"].as_str().unwrap()).unwrap(),
        shape: value["shape"].as_array().unwrap().iter().map(|length| length.as_u64().unwrap() as usize).collect(),
        data: BASE64_STANDARD.decode(value["data"].as_str().unwrap()).unwrap().into(),
    };
    case[list].as_array().map(|list| list.iter().map(tensor).collect()).unwrap_or_default()
}

fn numbers(tensor: &Tensor) -> Option<Vec<f64>> {
    let data = &tensor.data;
    Some(match tensor.datatype {
        Datatype::Fp32 => data.as_chunks::<4>().0.iter().map(|c| f64::from(f32::from_le_bytes(*c))).collect(),
        Datatype::Fp64 => data.as_chunks::<8>().0.iter().map(|c| f64::from_le_bytes(*c)).collect(),
        _ => return None,
    })
}

/// What differs between two tensors: numbers by more than `tolerance`, of the larger of 1 and their size; others at all.
fn difference(got: &Tensor, wanted: &Tensor, tolerance: f64) -> Option<String> {
    if (got.datatype, &got.shape) != (wanted.datatype, &wanted.shape) {
        return Some(format!("{}: {:?} {:?}, not {:?} {:?}", got.name, got.datatype, got.shape, wanted.datatype, wanted.shape));
    }
    let (Some(got_numbers), Some(wanted_numbers)) = (numbers(got), numbers(wanted)) else {
        return (got.data != wanted.data).then(|| format!("{}: {:?}, not {:?}", got.name, got.data, wanted.data));
    };
    let is_near = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0);
    let pairs = || got_numbers.iter().zip(&wanted_numbers);
    pairs()
        .position(|pair| !is_near(pair))
        .map(|at| format!("{}[{at}]: {}, not {}", got.name, got_numbers[at], wanted_numbers[at]))
}

fn answer(model: &TabularModel, inputs: &[Tensor]) -> Vec<Tensor> {
    let wanted = vec![true; model.outputs().len()];
    model.run(&mut TabularState::default(), inputs, &wanted).unwrap_or_else(|error| panic!("{error}"))
}

/// Whole, and row by row.
fn check(model: &TabularModel, case: &Value) -> Result<(), String> {
    let (inputs, wanted) = (tensors(case, "inputs"), tensors(case, "outputs"));
    let got = answer(model, &inputs);
    if let Some(fault) = got.iter().zip(&wanted).find_map(|(got, wanted)| difference(got, wanted, 2e-6)) {
        return Err(fault);
    }
    for (spec, tensor) in model.outputs().iter().zip(&got) {
        let fits = spec.shape.len() == tensor.shape.len()
            && spec.shape.iter().zip(&tensor.shape).all(|(wanted, got)| wanted.is_none_or(|wanted| wanted == *got));
        if !fits || (&spec.name, spec.datatype) != (&tensor.name, tensor.datatype) {
            return Err(format!("{spec:?} is not {} {:?}", tensor.name, tensor.shape));
        }
    }
    Ok(())
}

#[test]
fn libraries_models_answer_as_onnx_runtime_and_as_predicted() {
    let mut faults = Vec::new();
    let mut cases = 0;
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "onnx")) {
        cases += 1;
        let case: Value = serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let proto = ModelProto::decode(&*std::fs::read(path).unwrap()).unwrap();
        let model = match TabularModel::from_proto(&proto) {
            Ok(model) => model,
            Err(error) => {
                faults.push(format!("{name}: {error}"));
                continue;
            }
        };
        if let Err(fault) = check(&model, &case) {
            faults.push(format!("{name}: {fault}"));
        }
        let got = answer(&model, &tensors(&case, "inputs"));
        for predicted in tensors(&case, "library") {
            if let Some(fault) = against_library(&got, &predicted) {
                faults.push(format!("{name}: library: {fault}"));
            }
        }
    }
    assert!(cases >= 25, "{cases} cases");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A library's labels may be of another width, its predictions of another shape.
fn against_library(got: &[Tensor], predicted: &Tensor) -> Option<String> {
    let index = usize::from(predicted.name == "scores");
    let got = got.get(index)?;
    if got.datatype == Datatype::Bytes {
        return (got.data != predicted.data).then(|| "labels differ".to_owned());
    }
    let (got, wanted) = (wide(got), wide(predicted));
    if got.len() != wanted.len() {
        return Some(format!("{}: {} numbers, not {}", predicted.name, got.len(), wanted.len()));
    }
    let at = got.iter().zip(&wanted).position(|(a, b)| (a - b).abs() > 1e-6 * b.abs().max(1.0));
    at.map(|at| format!("{}[{at}]: {}, not {}", predicted.name, got[at], wanted[at]))
}

fn wide(tensor: &Tensor) -> Vec<f64> {
    numbers(tensor).unwrap_or_else(|| match tensor.datatype {
        Datatype::Int32 => tensor.data.as_chunks::<4>().0.iter().map(|c| f64::from(i32::from_le_bytes(*c))).collect(),
        _ => tensor.data.as_chunks::<8>().0.iter().map(|c| i64::from_le_bytes(*c) as f64).collect(),
    })
}

#[test]
fn random_models_answer_as_onnx_runtime() {
    let further = std::env::var_os("LAPWING_TABULAR_CASES").map(PathBuf::from);
    let is_further = further.is_some();
    let lines = std::fs::read_to_string(further.unwrap_or_else(|| folder().join("rules.jsonl"))).unwrap();
    let (mut faults, mut cases) = (Vec::new(), 0);
    for (at, line) in lines.lines().enumerate() {
        cases += 1;
        let case: Value = serde_json::from_str(line).unwrap();
        let proto = ModelProto::decode(&*BASE64_STANDARD.decode(case["model"].as_str().unwrap()).unwrap()).unwrap();
        let operator = &proto.graph.as_ref().unwrap().node[0].op_type;
        let checked = TabularModel::from_proto(&proto).map_err(|error| error.to_string()).and_then(|model| check(&model, &case));
        if let Err(fault) = checked {
            faults.push(format!("line {at} ({operator}): {fault}"));
        }
    }
    assert!(cases > 0 && (cases >= 100 || is_further), "{cases} cases");
    assert!(faults.is_empty(), "{} of {cases}:\n{}", faults.len(), faults[..faults.len().min(20)].join("\n"));
}

#[test]
fn broken_files_are_refused_or_run() {
    let mut seed = 1_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below.max(1)
    };
    let mut tried = [0_usize; 2];
    for name in ["lightgbm", "logistic_imputer_scaler_zipmap", "columns_onehot_boosting", "random_forest_multiclass", "svc_rbf"] {
        let bytes = std::fs::read(folder().join(format!("{name}.onnx"))).unwrap();
        let case: Value = serde_json::from_slice(&std::fs::read(folder().join(format!("{name}.json"))).unwrap()).unwrap();
        let inputs = tensors(&case, "inputs");
        for round in 0..60 {
            let mut broken = bytes.clone();
            if round % 3 == 0 {
                broken.truncate(random(bytes.len()));
            }
            for _ in 0..round % 3 * (1 + random(8)) {
                let (at, bit) = (random(broken.len()), random(8));
                if let Some(byte) = broken.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            let Ok(proto) = ModelProto::decode(&*broken) else { continue };
            match TabularModel::from_proto(&proto) {
                Ok(model) => {
                    tried[0] += 1;
                    drop(model.run(&mut TabularState::default(), &inputs, &[true, true]));
                }
                Err(error) => {
                    tried[1] += 1;
                    assert!(!error.reason.is_empty() && error.to_string().len() < 4096, "{error}");
                }
            }
        }
    }
    assert!(tried.iter().all(|count| *count >= 10), "{tried:?} ran and were refused: too few to say anything");
}
