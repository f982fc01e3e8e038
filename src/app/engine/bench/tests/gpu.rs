//! A GPU's rows, measured on the emulated device with the refusal bypassed, to check their fields; and the refusals.

use serde_json::Value as Json;

use super::{args, fixture};
use crate::app::engine::bench::{Requested, group};
use crate::app::engine::cli::BenchArgs;
use crate::app::engine::documented;
use lapwing_engine::cpu::threads::Threads;
use lapwing_engine::gpu::DeviceRequest;
use lapwing_model::{Backend, Device};
use lapwing_plan::Precision;
use lapwing_testing::{alone, fakes, test_name};

/// The fields that only a GPU's rows have.
const FIELDS: [&str; 9] =
    ["device_name", "gemm", "kernels", "device_us", "stage_us", "launch_us", "launch_floor_us", "mark_us", "nodes_us"];

fn refused(args: &BenchArgs) -> String {
    let mut out = Vec::new();
    let told = super::run(args, &mut out).unwrap_err().to_string();
    assert!(out.is_empty(), "a row was told: {}", String::from_utf8_lossy(&out));
    told
}

#[test]
fn no_row_of_a_processor_stands_for_a_gpu() {
    alone(test_name!(), || {
        let cuda = BenchArgs { device: Device::Cuda(0), ..args("mlp-3") };
        let rten = BenchArgs { executor: Backend::Rten, ..cuda.clone() };
        assert_eq!(refused(&rten), "device: cuda:0 needs a plan, but executor is rten");
        let threads = BenchArgs { threads: vec![1, 2], ..cuda.clone() };
        assert_eq!(refused(&threads), "threads: [1, 2]: one thread launches the work of cuda:0");
        // the first driver that is found stays the process'
        let folder = Some(fakes::kernels());
        let found = BenchArgs { cuda_lib_dir: folder.clone(), ..cuda.clone() };
        assert_eq!(refused(&found), "device: cuda:0 is lapwing-emulated, which is never measured");
        let second = BenchArgs { device: Device::Cuda(7), ..found };
        assert!(refused(&second).starts_with("device: cuda:7: "), "{}", refused(&second));
        // `auto` runs on the processor and reports it, but never in another precision than requested
        let auto = BenchArgs { device: Device::Auto, cuda_lib_dir: folder, batch: vec![1], ..args("mlp-3") };
        assert!(super::lines(&auto).iter().all(|line| line["device"] == "cpu"));
        let table = super::told(&BenchArgs { json: false, ..auto.clone() }).unwrap();
        assert!(table.contains("on the processor because of emulated: cuda:0 is lapwing-emulated"), "{table}");
        let half = refused(&BenchArgs { precision: Precision::Fp16, ..auto });
        assert!(half.starts_with("precision: fp16 cannot be had on cpu: cuda:0 is lapwing-emulated"), "{half}");
    });
}

#[test]
fn a_gpus_rows_have_their_fields() {
    alone(test_name!(), || {
        let args =
            BenchArgs { batch: vec![1, 3], device: Device::Cuda(0), samples: true, precision: Precision::Fp16, ..args("mlp-3") };
        let wish = DeviceRequest::device(Some(&fakes::kernels()), 0, Precision::Fp16.into()).unwrap();
        let threads = Threads::new(1, &[]).unwrap().into();
        let wished = Requested { gpu: Some(wish), took_ns: 5 };
        let mut out = Vec::new();
        assert!(group(&args, &wished, &threads, &mut out).unwrap());
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().for_each(|line| documented(line, &[]));
        let [peaks, cold, rows @ ..] = &lines[..] else { panic!("{text}") };
        for field in ["fp32", "tf32", "fp16"].map(|name| format!("{name}_flops_per_s")) {
            assert!(peaks[&field].as_f64() > Some(0.0), "{peaks}");
        }
        for field in ["int8_ops_per_s", "l2_bytes_per_s", "dram_bytes_per_s", "l2_bytes", "launch_us"] {
            assert!(peaks[field].as_f64() > Some(0.0), "{field}: {peaks}");
        }
        assert_eq!((&peaks["device"], &cold["device"]), (&"cuda:0".into(), &"cuda:0".into()));
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert!(super::FIELDS.iter().chain(&FIELDS).all(|field| row.get(field).is_some()), "{row}");
            // rows of a table have no length
            let is_known = |(name, value): (&String, &Json)| name == "length" || !value.is_null();
            assert!(row.as_object().unwrap().iter().all(is_known), "{row}");
            assert_eq!((&row["device"], &row["precision"], &row["gemm"]), (&"cuda:0".into(), &"fp16".into(), &"own".into()));
            let nodes = row["nodes_us"].as_array().unwrap();
            assert_eq!(nodes.len() as u64, row["kernels"].as_u64().unwrap());
            for node in nodes {
                assert!(node["us"].as_f64() >= Some(0.0) && node["kernel"].as_str().is_some_and(|name| !name.is_empty()));
            }
            assert!(row["device_us"]["kernels"].as_f64() <= row["device_us"]["all"].as_f64(), "{row}");
            let number = |name: &str| row[name].as_f64().unwrap();
            if row["bound"] == "launch" {
                let share = number("launch_floor_us") / row["device_us"]["kernels"].as_f64().unwrap();
                assert!((number("utilisation") / share - 1.0).abs() < 1e-6, "{row}");
            }
            // rates are of the kernels' time
            let rate = row["flops"].as_f64().unwrap() / row["device_us"]["kernels"].as_f64().unwrap() * 1e6;
            assert!((row["flops_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-6, "{row}");
        }
        let mut table = Vec::new();
        group(&BenchArgs { json: false, ..args }, &wished, &threads, &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains("\nGPU          lapwing-emulated, with a driver for CUDA "), "{table}");
    });
}

#[test]
fn a_node_that_the_gpu_does_not_take_is_named() {
    alone(test_name!(), || {
        let folder = fakes::kernels();
        let wish = DeviceRequest::device(Some(&folder), 0, Precision::Fp32.into()).unwrap();
        let args = BenchArgs { device: Device::Cuda(0), model: fixture("refused-conv"), ..args("mlp-3") };
        let threads = Threads::new(1, &[]).unwrap().into();
        let mut out = Vec::new();
        let told = group(&args, &Requested { gpu: Some(wish), took_ns: 0 }, &threads, &mut out).unwrap_err().to_string();
        assert!(told.starts_with("device: only plans run there: ") && told.contains("Conv"), "{told}");
        assert!(out.is_empty());
    });
}
