//! An ONNX file.
#![no_main]

#[path = "../onnx_properties.rs"]
mod onnx_properties;

libfuzzer_sys::fuzz_target!(
    // a panic of the importer is caught and is an error of the file; one of ours is not caught, and ends the run all the same
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| assert!(onnx_properties::holds(bytes))
);
