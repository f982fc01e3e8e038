//! The output of `inspect` for the fixtures, a model without a plan, files that are not models, and shapes counted by hand.

use std::path::PathBuf;

use serde_json::Value as Json;

use super::*;
use lapwing_plan::plan::{Activation, Columns, ElementType, Node, Op, Rows, Value, ValueId, Weight, WeightId};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans").join(format!("{name}.onnx"))
}

fn args(name: &str) -> InspectArgs {
    InspectArgs {
        model: fixture(name),
        batch: vec![],
        shapes: Vec::new(),
        length: vec![],
        plan: false,
        executor: lapwing_model::Backend::Auto,
        ort_lib: lapwing_model::OrtLibrary::Off,
        ort_provider: ProviderChoice::default(),
        device: Device::Auto,
        precision: lapwing_plan::Precision::Fp32,
        json: false,
    }
}

fn told(args: &InspectArgs) -> Result<String, String> {
    let mut out = Vec::new();
    run(args, &mut out).map_err(|e| e.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

fn json(args: &InspectArgs) -> Json {
    serde_json::from_str(&told(args).unwrap()).unwrap()
}

/// Products one after the other, and an attention over the last one's columns.
fn plan(rows: Rows, layers: &[(usize, usize)], attention: Option<(usize, usize)>) -> Plan {
    let value = |width| Value { rows, width, kind: ElementType::F32 };
    let mut plan = Plan { values: vec![value(layers[0].0)], ..Plan::default() };
    for (place, (k, n)) in layers.iter().enumerate() {
        plan.values.push(value(*n));
        plan.weights.push(Weight { name: "w".into(), rows: *k, width: *n, data: vec![].into() });
        let weight = WeightId(place);
        let op = Op::Gemm { x: ValueId(place), weight, bias: None, activation: Activation::None, residual: None };
        plan.nodes.push(Node { name: "gemm".into(), op, output: ValueId(place + 1) });
    }
    if let Some((heads, head)) = attention {
        let columns = |part| Columns { value: ValueId(1), from: part * heads * head };
        let (q, k, v) = (columns(0), columns(1), columns(2));
        let op = Op::Attention {
            q,
            k,
            v,
            heads,
            key_heads: heads,
            head,
            head_out: head,
            scale: 1.0,
            bias: None,
            by_distance: None,
            is_zero_if_masked: false,
        };
        plan.values.push(value(heads * head));
        plan.nodes.push(Node { name: "attention".into(), op, output: ValueId(plan.values.len() - 1) });
    }
    plan
}

#[test]
fn the_constants_of_the_documents_are_counted() {
    let mlp = plan(Rows::Batch, &[(512, 1024), (1024, 1024), (1024, 1)], None);
    let costs = planned(&mlp, Shape { batch: 1, length: None });
    assert_eq!(costs.flops, Some(3_147_776));
    assert_eq!(si(3_147_776.0, "FLOP"), "3.148 MFLOP");
    let parameters = 512 * 1024 + 1024 * 1024 + 1024;
    assert_eq!(costs.min_bytes, Some(4 * parameters));
    // six layers of MiniLM: Q, K and V in one, their output, and two of the middle
    let layer = [(384, 1152), (384, 384), (384, 1536), (1536, 384)];
    let shape = Shape { batch: 32, length: Some(128) };
    let dense: u64 = layer.iter().filter_map(|layer| planned(&plan(Rows::Token, &[*layer], None), shape).flops).sum();
    let with = planned(&plan(Rows::Token, &[(384, 1152)], Some((12, 32))), shape).flops.unwrap();
    let scores = with - planned(&plan(Rows::Token, &[(384, 1152)], None), shape).flops.unwrap();
    assert_eq!(scores, 4 * 32 * 128 * 128 * 384);
    assert_eq!(si(6.0 * (dense + scores) as f64, "FLOP"), "91.80 GFLOP");
}

#[test]
fn a_model_with_a_plan_is_told_as_json() {
    let about = json(&InspectArgs { json: true, batch: vec![2, 1], length: vec![3], ..args("0001") });
    assert_eq!((about["executor"].as_str(), &about["refused"]), (Some("plan"), &Json::Null));
    assert_eq!(about["opset"], 15);
    crate::app::engine::documented(&about, &["operators"]);
    assert_eq!(about["inputs"][0]["name"], "ids");
    assert_eq!((&about["inputs"][0]["datatype"], &about["inputs"][0]["shape"]), (&"INT64".into(), &serde_json::json!([-1, -1])));
    assert!(about["operators"]["MatMul"].as_u64().unwrap() > 4, "{about}");
    let shapes = about["shapes"].as_array().unwrap();
    assert_eq!(
        shapes.iter().map(|s| (s["batch"].as_u64(), s["length"].as_u64())).collect::<Vec<_>>(),
        [(Some(1), Some(3)), (Some(2), Some(3))]
    );
    // twice the rows of one length: twice the FLOPs
    let flops = |at: usize| shapes[at]["flops"].as_u64().unwrap();
    assert_eq!(2 * flops(0), flops(1));
    assert!(shapes[0]["min_bytes"].as_u64() < shapes[0]["bytes"].as_u64());
    let share = flops(0) as f64 / shapes[0]["bytes"].as_u64().unwrap() as f64;
    assert!((shapes[0]["arithmetic_intensity"].as_f64().unwrap() - share).abs() < 1e-12);
}

#[test]
fn the_plan_is_told_as_json_and_its_nodes_make_its_totals() {
    for name in ["0000", "0001", "0007", "0012"] {
        let plan = json(&InspectArgs { json: true, plan: true, batch: vec![3], length: vec![2], ..args(name) });
        crate::app::engine::documented(&plan, &[]);
        let nodes = plan["nodes"].as_array().unwrap();
        for field in ["flops", "other_ops", "bytes"] {
            let sum: u64 = nodes.iter().map(|node| node[field].as_u64().unwrap()).sum();
            assert_eq!(plan["totals"][field], sum, "{name} {field}");
        }
        let values = plan["values"].as_array().unwrap();
        for node in nodes {
            let made = &values[node["output"].as_u64().unwrap() as usize];
            assert_eq!((&made["rows"], &made["width"]), (&node["rows"], &node["width"]));
            assert!(node["reads"].as_array().unwrap().iter().all(|id| (id.as_u64().unwrap() as usize) < values.len()));
            let own = match node["op"].as_str().unwrap() {
                "gemm" => "activation",
                "attention" => "heads",
                "embed" => "tables",
                "layer_norm" => "epsilon",
                "map" => "program",
                _ => "name",
            };
            assert!(!node[own].is_null(), "{node}");
        }
        for port in ["inputs", "outputs"].iter().flat_map(|ports| plan[ports].as_array().unwrap()) {
            assert!(port["name"].is_string() && port["value"].is_u64(), "{port}");
        }
    }
}

#[test]
fn a_refused_model_names_its_node() {
    let about = json(&InspectArgs { json: true, batch: vec![1], ..args("refused-conv") });
    assert_eq!((about["executor"].as_str(), about["refused"]["node"].as_str()), (Some("rten"), Some("the_conv")));
    assert!(about["shapes"][0]["flops"].as_u64() > Some(0), "convolutions are counted: {about}");
    assert!(about["shapes"][0]["bytes"].as_u64() > Some(0) && about["shapes"][0]["not_counted"] == serde_json::json!({}));
    assert!(about["parameters"].as_u64() > Some(0));
    let text = told(&args("refused-conv")).unwrap();
    assert!(text.contains("\nruns by      rten; no plan for the_conv (Conv"), "{text}");
    let error = told(&InspectArgs { json: true, plan: true, ..args("refused-conv") }).unwrap_err();
    assert!(error.starts_with("plan: the model has none: the_conv"), "{error}");
}

#[test]
fn tables_of_positions_that_are_computed_are_no_parameters() {
    // what its exporter has as initializers
    for (name, parameters) in [
        ("transformers-5-llama-script", 2864),
        ("transformers-5-llama-dynamo", 2864),
        ("transformers-5-cache-llama-sdpa-script", 3248),
        ("transformers-5-cache-llama-sdpa-dynamo", 3248),
    ] {
        let about = json(&InspectArgs { json: true, batch: vec![1], length: vec![2], ..args(name) });
        assert_eq!((about["executor"].as_str(), about["parameters"].as_u64()), (Some("plan"), Some(parameters)), "{name}");
    }
}

#[test]
fn the_batch_axis_is_told_of_every_model() {
    for (name, said) in [
        ("0001", "the first, by the plan"),
        ("refused-conv", "the first: rows of a batch answer as they do alone"),
        ("fixed-batch", "the first, by the plan"),
        ("refused-fixed-conv", "none: input x has no open first axis"),
    ] {
        assert_eq!(json(&InspectArgs { json: true, ..args(name) })["batch_axis"], said, "{name}");
        assert!(told(&args(name)).unwrap().contains(&format!("\nbatch axis   {said}\n")), "{name}");
    }
}

#[test]
fn names_of_a_file_move_no_cursor() {
    use lapwing_testing::onnx::{general, model, port};
    use prost::Message;
    let name = "y\u{1b}[2J\nruns by      magic";
    let node = general("Erf", &["x"], &[name], vec![]);
    let file = model(vec![port("x", 1, &[0, 3])], vec![node], &[name], vec![]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("named.onnx");
    std::fs::write(&path, file.encode_to_vec()).unwrap();
    let text = told(&InspectArgs { model: path.clone(), plan: true, ..args("") }).unwrap();
    assert!(text.contains("outputs      y\\u{1b}[2J\\nruns by      magic FP32 ["), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("\nruns by      magic"), "{text}");
    // JSON has its own escapes, and the name as it is
    let about = json(&InspectArgs { model: path.clone(), json: true, ..args("") });
    assert_eq!(about["outputs"][0]["name"], name);
}

#[test]
fn a_fixed_batch_is_the_only_one() {
    for name in ["fixed-batch", "refused-fixed-conv"] {
        let about = json(&InspectArgs { json: true, ..args(name) });
        let fixed = about["inputs"][0]["shape"][0].as_u64().unwrap();
        assert_eq!(about["shapes"].as_array().unwrap().len(), 1);
        assert_eq!(about["shapes"][0]["batch"], fixed);
        let error = told(&InspectArgs { batch: vec![fixed + 1], ..args(name) }).unwrap_err();
        assert!(error.starts_with(&format!("batch: {}: the model's input ", fixed + 1)), "{error}");
    }
}

#[test]
fn a_fixed_first_axis_beside_an_open_one_is_not_the_batchs() {
    use lapwing_onnx::messages::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
    use lapwing_testing::onnx;
    use prost::Message;
    // a state of two layers, before the input and after it
    let port = |name: &str, lengths: &[i64]| onnx::port(name, 1, lengths);
    let (state, x) = (port("state", &[2, 3]), port("x", &[0, 3]));
    for inputs in [vec![state.clone(), x.clone()], vec![x, state]] {
        let node = |kind: &str, reads: &str, makes: &str| NodeProto {
            op_type: kind.into(),
            input: vec![reads.into()],
            output: vec![makes.into()],
            ..Default::default()
        };
        let graph = GraphProto {
            name: "g".into(),
            node: vec![node("Cos", "x", "y"), node("Cos", "state", "next")],
            input: inputs,
            output: vec![port("y", &[0, 3]), port("next", &[2, 3])],
            ..Default::default()
        };
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
        let file = ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..Default::default() };
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("stateful.onnx");
        std::fs::write(&model, file.encode_to_vec()).unwrap();
        let batches = |batch: Vec<u64>| -> Vec<u64> {
            let about = json(&InspectArgs { json: true, model: model.clone(), batch, ..args("") });
            about["shapes"].as_array().unwrap().iter().map(|shape| shape["batch"].as_u64().unwrap()).collect()
        };
        assert_eq!((batches(vec![]), batches(vec![5])), (vec![1, 32], vec![5]));
    }
}

#[test]
fn lengths_end_with_the_positions() {
    let text = told(&InspectArgs { plan: true, ..args("0001") }).unwrap();
    assert!(text.contains("runs by      its plan") && text.contains("FLOP/byte") && text.contains("attention"), "{text}");
    let error = told(&InspectArgs { length: vec![60_000], ..args("0001") }).unwrap_err();
    assert!(error.starts_with("length: 60000: the model's positions end at "), "{error}");
}

#[test]
fn files_that_are_no_models_are_named() {
    let missing = told(&args("nothing")).unwrap_err();
    assert!(missing.contains("nothing.onnx: "), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("text.onnx");
    std::fs::write(&model, "no model").unwrap();
    let error = told(&InspectArgs { model, ..args("") }).unwrap_err();
    assert!(error.starts_with("file: is no ONNX model"), "{error}");
}

#[cfg(feature = "cuda")]
#[test]
fn kernels_of_a_gpu_are_told_without_one() {
    let on_gpu = |name: &str, precision| InspectArgs { plan: true, json: true, device: Device::Cuda(0), precision, ..args(name) };
    use lapwing_plan::Precision::{Fp16, Fp32};
    let mlp = json(&on_gpu("mlp-3", Fp32));
    let kernels: Vec<&str> = mlp["launches"].as_array().unwrap().iter().map(|l| l["kernel"].as_str().unwrap()).collect();
    assert_eq!(kernels, ["gemv_f32_1"; 3]);
    assert_eq!((&mlp["graph_launches"], &mlp["completion"], &mlp["inputs_by"]), (&1.into(), &"flag".into(), &"mapped".into()));
    let bert = json(&on_gpu("bert-post-2", Fp16));
    let nodes = bert["nodes"].as_array().unwrap().len();
    let launches = bert["launches"].as_array().unwrap();
    assert!((0..nodes).all(|node| launches.iter().any(|launch| launch["node"] == node)), "{launches:?}");
    let table = told(&InspectArgs { json: false, ..on_gpu("bert-post-2", Fp16) }).unwrap();
    assert!(table.contains("one graph of") && table.contains("attention_f16_32"), "{table}");
    let refused = told(&on_gpu("refused-conv", Fp32)).unwrap_err();
    assert!(refused.contains("the_conv"), "{refused}");
    let alone = told(&InspectArgs { plan: false, ..on_gpu("mlp-3", Fp32) }).unwrap_err();
    assert_eq!(alone, "device: cuda is told of with --plan");
}
