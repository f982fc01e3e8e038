//! Execution providers of ONNX Runtime that the library does not have: an error that names them, and nothing runs elsewhere.

#![cfg(feature = "onnxruntime")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use lapwing_engine::onnxruntime::Runtime;
use lapwing_model::{Backend, ExecutorName, Model, ModelOptions, OrtLibrary, ProviderChoice};
use lapwing_onnx::OnnxFile;

fn fixture(name: &str) -> OnnxFile {
    OnnxFile::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans").join(name)).unwrap()
}

#[test]
fn a_provider_that_cannot_be_had_is_an_error_and_nothing_runs_elsewhere() {
    let Some(folder) = lapwing_testing::onnxruntime() else { return };
    let runtime = Runtime::find(Some(&folder)).unwrap();
    // the library of the tests' environment was built for the CPU alone
    assert!(runtime.providers().iter().any(|name| name == "CPUExecutionProvider"), "{:?}", runtime.providers());
    let (conv, mlp) = (fixture("refused-conv.onnx"), fixture("mlp-3.onnx"));
    for (text, name) in [("cuda:1", "CUDAExecutionProvider"), ("tensorrt", "TensorrtExecutionProvider")] {
        let provider: ProviderChoice = text.parse().unwrap();
        let reason = OrtLibrary::Auto.find(provider).unwrap_err().to_string();
        assert!(reason.starts_with(&format!("engine.ort_provider is {provider}, but ")), "{reason}");
        assert!(reason.contains(&format!(" was built without {name}; it has ")), "{reason}");
        // a library that has it may still lack CUDA, or the device
        let options = |backend| {
            let onnxruntime = Some(Ok(runtime.clone()));
            ModelOptions { backend, provider, onnxruntime, verify: true, measure: true, ..ModelOptions::default() }
        };
        for backend in [Backend::Auto, Backend::OnnxRuntime] {
            let error = Model::of(&conv, &options(backend)).unwrap_err().to_string();
            let said = format!("executor: onnxruntime cannot run it: by {provider} (engine.ort_provider): ");
            assert!(error.starts_with(&said), "{error}");
        }
        // what has a plan does without
        assert_eq!(Model::of(&mlp, &options(Backend::Auto)).unwrap().executor(), ExecutorName::Plan);
    }
    assert_eq!(OrtLibrary::Auto.find(ProviderChoice::default()).unwrap().unwrap().unwrap().path(), runtime.path());
}
