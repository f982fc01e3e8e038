//! The section `engine`: models, and where they stand in for an upstream.

use super::load;
use super::tests::{case, faults};

#[test]
fn the_engine_is_a_model_server_like_any_other() {
    let given = |yaml: &str| load(&case(yaml, &[], &[]).sources).map(|loaded| loaded.config);
    let config = given("engine: {model: /m/fraud-2.onnx, models: {embed@3: /m/e.onnx}, listen: \":9001\"}").unwrap();
    assert_eq!(config.upstream.to_string(), "http://127.0.0.1:9001", "where nobody names another");
    let wanted: Vec<_> = config.engine.wanted().map(|wanted| format!("{} {}", wanted.name, wanted.version)).collect();
    assert_eq!(wanted, ["fraud-2 1", "embed 3"]);
    assert!(given("upstream: http://127.0.0.1:8081\nengine: {model: m.onnx}").is_ok());
    assert!(given("upstream: http://m:1\nengine: {models: {a: a.onnx, a@2: b.onnx}}").is_ok());
}

#[test]
fn faults_of_the_engine_are_named() {
    let told = |section: &str| faults(&format!("engine: {section}"));
    assert!(
        told("{models: {\"a b\": m.onnx}}").contains("engine.models.a b: m.onnx: must be NAME or NAME@VERSION"),
        "{}",
        told("{models: {\"a b\": m.onnx}}")
    );
    assert!(told("{models: {a@x: m.onnx}}").contains("must be NAME or NAME@VERSION"));
    assert!(told("{model: a.onnx, models: {a: b.onnx}}").contains("is a second model named a, version 1"));
    assert!(told("{device: cuda}").contains("engine.device"), "{}", told("{device: cuda}"));
    assert!(told("{policy: fixed:0}").contains("must be adaptive, or fixed and a number of calls"));
    assert!(told("{cpus: 3-1}").contains("must be auto, or processors by number"));
    assert!(told("{min_wait: 6ms}").contains("must be at most max_wait, which is 5ms"));
    assert!(
        told("{models: {a: a.onnx, b: b.onnx}, precision: int8, calibration: r.json}")
            .contains("is of one model, and there are several")
    );
    assert!(told("{calibration: r.json}").contains("is of no use unless precision is int8"));
}
