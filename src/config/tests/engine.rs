//! The section `engine`: models, and when they replace an upstream.

use super::{case, faults};
use crate::config::{EngineConfig, load, load_as};

#[test]
fn the_engine_is_a_model_server_like_any_other() {
    let given = |yaml: &str| load(&case(yaml, &[], &[]).sources).map(|loaded| loaded.config);
    let config = given("engine: {model: /m/fraud-2.onnx, models: {embed@3: /m/e.onnx}, listen: \":9001\"}").unwrap();
    assert_eq!(config.upstream.to_string(), "http://127.0.0.1:9001", "if no upstream is given");
    let wanted: Vec<_> = config.engine.wanted().map(|wanted| format!("{} {}", wanted.name, wanted.version)).collect();
    assert_eq!(wanted, ["fraud-2 1", "embed 3"]);
    let flag = case("upstream: http://m:1", &[], &[("engine.models.all.in@3", "m.onnx")]).loaded().config;
    assert_eq!(flag.engine.wanted().next().map(|wanted| wanted.name), Some("all.in".to_owned()));
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
    let device = "engine.device: gpu: must be auto, cpu, cuda, or cuda and a number up to 255, as in cuda:1";
    assert!(told("{device: gpu}").contains(device), "{}", told("{device: gpu}"));
    assert!(told("{policy: fixed:0}").contains("must be adaptive, or fixed and a number of calls"));
    assert!(told("{cpus: 3-1}").contains("must be auto, or processors by number"));
    assert!(told("{min_wait: 6ms}").contains("must be at most max_wait, which is 5ms"));
    assert!(
        told("{models: {a: a.onnx, b: b.onnx}, precision: int8, calibration: r.json}")
            .contains("is for one model, and there are several")
    );
    assert!(told("{calibration: r.json}").contains("has no effect unless precision is int8"));
}

#[test]
fn serving_models_alone_reads_its_own_section() {
    let read = |yaml: &str, flags: &[(&str, &str)]| load_as::<EngineConfig>(&case(yaml, &[], flags).sources);
    let model = [("engine.models.m", "m.onnx")];
    let whole = "listen: 127.0.0.1:8081\notlp_http: 5\nproxy: {workers: many}\nlog: warn\nengine: {threads: 3}";
    let loaded = read(whole, &model).unwrap();
    assert_eq!((loaded.config.engine.threads, loaded.config.log.as_str()), (3, "warn"));
    assert_eq!((loaded.config.engine.listen, loaded.warnings.len()), (lapwing_settings::Bind::loopback(8081), 0));
    assert!(!loaded.render().contains("upstream"), "{}", loaded.render());
    let told = |yaml: &str| {
        let faults = read(yaml, &[]).unwrap_err();
        faults.iter().map(|fault| format!("{}: {}", fault.path, fault.reason)).collect::<Vec<_>>().join("; ")
    };
    assert!(told("log: warn").starts_with("engine.model: is required: give --model FILE"), "{}", told("log: warn"));
    assert!(told("engine: {models: {}}").starts_with("engine.model: names no model"), "{}", told("engine: {models: {}}"));
    assert_eq!(told("engine: {models: [m.onnx]}"), "engine.models: must be a section of keys");
    assert!(read("enigne: {}", &model).unwrap_err()[0].to_string().starts_with("enigne: unknown key; did you mean `engine`?"));
}

#[test]
fn a_device_is_one_of_a_few_words() {
    use lapwing_model::Device;

    let read = |text: &str| text.parse::<Device>();
    for (text, device, written) in [
        ("auto", Device::Auto, "auto"),
        (" cpu ", Device::Cpu, "cpu"),
        ("cuda", Device::Cuda(0), "cuda:0"),
        ("cuda:0", Device::Cuda(0), "cuda:0"),
        ("cuda:255", Device::Cuda(255), "cuda:255"),
    ] {
        assert_eq!((read(text), device.to_string().as_str()), (Ok(device), written));
        assert_eq!(read(written), Ok(device), "what is written is read back");
    }
    for wrong in ["", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:+1", "cuda:256", "cuda:0,1", "cuda: 1", "cpu:0"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn what_only_a_gpu_does_is_not_asked_of_a_processor() {
    let told = |section: &str| faults(&format!("engine: {section}"));
    let given = |section: &str| load(&case(&format!("upstream: http://m:1\nengine: {section}"), &[], &[]).sources);
    for precision in ["tf32", "fp16"] {
        let fault = told(&format!("{{device: cpu, precision: {precision}}}"));
        assert_eq!(fault, format!("engine.precision: {precision}: needs a GPU, but device is cpu (file l.yaml)"));
        for device in ["auto", "cuda", "cuda:3"] {
            assert!(given(&format!("{{device: \"{device}\", precision: {precision}}}")).is_ok(), "{device}");
        }
    }
    for precision in ["tf32", "fp16", "int8"] {
        let fault = told(&format!("{{executor: rten, precision: {precision}}}"));
        assert_eq!(fault, format!("engine.precision: {precision}: needs a plan, but executor is rten (file l.yaml)"));
    }
    let fault = told("{executor: rten, device: \"cuda:1\"}");
    assert_eq!(fault, "engine.device: cuda:1: needs a plan, but executor is rten (file l.yaml)");
    assert!(given("{executor: rten, device: auto}").is_ok());
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().display();
    assert!(given(&format!("{{cuda_lib_dir: {there}}}")).is_ok());
    let fault = told(&format!("{{cuda_lib_dir: {there}/none}}"));
    assert_eq!(fault, format!("engine.cuda_lib_dir: {there}/none: is not a readable folder (file l.yaml)"));
    let fault = told(&format!("{{cuda_lib_dir: {there}, device: cpu}}"));
    assert_eq!(fault, format!("engine.cuda_lib_dir: {there}: has no effect while device is cpu (file l.yaml)"));
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_gpu_needs_a_build_that_knows_of_it() {
    let told = |section: &str| faults(&format!("engine: {section}"));
    assert!(told("{device: cuda}").contains("engine.device: cuda:0: is not in this build"), "{}", told("{device: cuda}"));
    assert!(told("{precision: fp16}").contains("this build was made without the feature cuda"));
}
