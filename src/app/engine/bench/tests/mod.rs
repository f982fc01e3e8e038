//! The rows of a benchmark: their fields, and that bounds and utilisation come from the roofline.

use std::path::PathBuf;

use serde_json::Value as Json;

use super::super::cli::{CpuList, Products};
use super::loaded::TURNS;
use super::rows::BatchWork;
use super::*;
use lapwing_model::Backend;
use lapwing_plan::plan::Cost;
use lapwing_plan::roofline::{Ceiling, Roofline};

#[cfg(feature = "cuda")]
mod gpu;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans").join(format!("{name}.onnx"))
}

fn args(name: &str) -> BenchArgs {
    BenchArgs {
        model: fixture(name),
        batch: vec![],
        shapes: Vec::new(),
        length: vec![],
        threads: vec![1],
        seconds: 0.005,
        device: Device::Cpu,
        cuda_lib_dir: None,
        precision: Precision::Fp32,
        calibration: None,
        executor: Backend::Auto,
        ort_lib: lapwing_model::OrtLibrary::Off,
        ort_provider: lapwing_model::ProviderChoice::default(),
        cpus: None,
        gemm: Products::Auto,
        samples: false,
        json: true,
    }
}

fn told(args: &BenchArgs) -> Result<String, String> {
    let mut out = Vec::new();
    run(args, &mut out).map_err(|e| e.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

fn lines(args: &BenchArgs) -> Vec<Json> {
    told(args).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The names that the issue and docs/ENGINE.md promise.
const FIELDS: [&str; 24] = [
    "model",
    "device",
    "executor",
    "precision",
    "threads",
    "cpu_flags",
    "processor",
    "measured_at",
    "batch",
    "length",
    "p50_us",
    "p99_us",
    "flops",
    "bytes",
    "flops_per_s",
    "bytes_per_s",
    "bound",
    "utilisation",
    "optimum_us",
    "peak_suspect",
    "batch_speed_up",
    "batch_efficiency",
    "min_bytes",
    "runs",
];

#[test]
fn peaks_and_cold_start_come_first_and_rows_have_their_fields() {
    let lines = lines(&BenchArgs { batch: vec![4, 1], length: vec![3, 2], ..args("0001") });
    assert_eq!(lines.len(), 2 + 4);
    assert_eq!((lines[0]["case"].as_str(), lines[1]["case"].as_str()), (Some("peaks"), Some("cold_start")));
    for field in ["fp32_flops_per_s", "int8_ops_per_s", "l2_bytes_per_s", "llc_bytes_per_s", "dram_bytes_per_s", "launch_us"] {
        assert!(lines[0][field].as_f64() > Some(0.0), "{field}: {}", lines[0]);
    }
    assert!(lines[1]["load_us"].as_f64() > Some(0.0) && lines[1]["first_us"].as_f64() > Some(0.0), "{}", lines[1]);
    assert_eq!((&lines[1]["executor"], &lines[1]["model"]), (&"plan".into(), &"0001".into()));
    lines.iter().for_each(|line| crate::app::engine::documented(line, &[]));
    let mut cases = Vec::new();
    for row in &lines[2..] {
        let mut fields: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        let mut promised = FIELDS.to_vec();
        promised.sort_unstable();
        assert_eq!(fields, promised);
        assert!(row.as_object().unwrap().values().all(|value| !value.is_null()), "{row}");
        cases.push((row["batch"].as_u64().unwrap(), row["length"].as_u64().unwrap()));
        assert!(row["p99_us"].as_f64() >= row["p50_us"].as_f64() && row["runs"].as_u64() >= Some(LEAST_RUNS as u64), "{row}");
        let rate = row["flops"].as_f64().unwrap() / row["p50_us"].as_f64().unwrap() * 1e6;
        assert!((row["flops_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{row}");
        assert!(["compute", "memory", "launch"].contains(&row["bound"].as_str().unwrap()));
    }
    assert_eq!(cases, [(1, 2), (4, 2), (1, 3), (4, 3)]);
    let (one, four) = (&lines[2], &lines[3]);
    assert_eq!(one["batch_speed_up"], 1.0);
    let gained = 4.0 * one["p50_us"].as_f64().unwrap() / four["p50_us"].as_f64().unwrap();
    assert!((four["batch_speed_up"].as_f64().unwrap() - gained).abs() < 1e-9);
    assert!((four["batch_efficiency"].as_f64().unwrap() - gained / 4.0).abs() < 1e-9);
}

#[test]
fn bound_and_utilisation_are_the_rooflines() {
    let ceiling = Ceiling {
        fp32_per_s: 100e9,
        tf32_per_s: 100e9,
        fp16_per_s: 100e9,
        int8_per_s: 400e9,
        bytes_per_s: 10e9,
        launch_ns: 50.0,
    };
    // 2000 ns of compute, 1000 of memory
    let node = (Precision::Fp32, Cost { flops: 200_000, other_ops: 5, bytes: 10_000 });
    let roofline = Some(Roofline::of([node], &ceiling));
    let work = BatchWork { flops: Some(200_000), min_bytes: Some(7), roofline, elapsed_ns: None };
    let run = Run {
        model: "m".into(),
        device: "cpu".into(),
        device_name: None,
        executor: "plan",
        precision: "fp32",
        threads: 1,
        cpu_flags: String::new(),
        processor: None,
        measured_at: String::new(),
    };
    let shape = Shape { batch: 2, length: None };
    let row = Row::new(&run, shape, &[3_900, 4_000, 9_000], &work, Some(3_000));
    assert_eq!((row.p50_us, row.p99_us, row.runs), (4.0, 9.0, 3));
    assert_eq!((row.bound, row.utilisation, row.optimum_us), (Some("compute"), Some(0.5), Some(2.0)));
    assert_eq!((row.flops_per_s, row.bytes_per_s, row.bytes), (Some(50e9), Some(2.5e9), Some(10_000)));
    assert_eq!((row.batch_speed_up, row.batch_efficiency, row.peak_suspect), (Some(1.5), Some(0.75), Some(false)));
    // faster than the machine can be
    let row = Row::new(&run, shape, &[1_600], &work, None);
    assert_eq!((row.utilisation, row.peak_suspect, row.batch_speed_up), (Some(1.25), Some(true), None));
    // by the time of a device's kernels; a pass takes longer
    let row = Row::new(&run, shape, &[9_000], &BatchWork { elapsed_ns: Some(4_000.0), ..work }, None);
    assert_eq!((row.p50_us, row.utilisation, row.flops_per_s), (9.0, Some(0.5), Some(50e9)));
    // of rten, FLOPs at most are known
    let row = Row::new(&run, shape, &[1_000], &BatchWork::unknown(Some(5)), None);
    assert_eq!((row.flops_per_s, row.bytes, row.bound, row.utilisation), (Some(5e6), None, None, None));
}

#[test]
fn tract_says_what_it_knows() {
    for (name, executor) in [("refused-conv", Backend::Auto), ("0001", Backend::Rten)] {
        let lines = lines(&BenchArgs { executor, batch: vec![], length: vec![2], ..args(name) });
        for row in &lines[2..] {
            assert_eq!(row["executor"], "rten");
            assert!(row["flops"].as_u64() > Some(0), "{row}");
            assert_eq!((&row["bytes"], &row["bound"], &row["utilisation"]), (&Json::Null, &Json::Null, &Json::Null));
        }
        assert!(lines.len() > 2);
    }
}

#[test]
fn tract_and_the_plan_count_the_same_products() {
    let counted = |executor| {
        let lines = lines(&BenchArgs { executor, batch: vec![3], ..args("0000") });
        lines[2]["flops"].as_u64().unwrap()
    };
    assert_eq!(counted(Backend::Auto), counted(Backend::Rten));
}

#[test]
fn eight_bits_are_fewer_bytes() {
    // the fixture's products are wide enough for bytes
    let of = |precision| lines(&BenchArgs { precision, batch: vec![1], ..args("0003") })[2].clone();
    let (exact, bytes) = (of(Precision::Fp32), of(Precision::Int8));
    assert_eq!((&exact["precision"], &bytes["precision"]), (&"fp32".into(), &"int8".into()));
    assert_eq!(exact["flops"], bytes["flops"]);
    assert!(bytes["bytes"].as_u64() < exact["bytes"].as_u64(), "{bytes} {exact}");
    assert!(bytes["min_bytes"].as_u64() < exact["min_bytes"].as_u64());
    let error = told(&BenchArgs { precision: Precision::Int8, ..args("refused-conv") }).unwrap_err();
    assert!(error.starts_with("precision: int8 needs a plan"), "{error}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let refused = |args: &BenchArgs| told(args).unwrap_err();
    for (precision, name) in [(Precision::Tf32, "tf32"), (Precision::Fp16, "fp16")] {
        let fault = format!("precision: {name} needs a GPU, but device is cpu");
        assert_eq!(refused(&BenchArgs { precision, ..args("0000") }), fault);
        let rten = BenchArgs { precision, device: Device::Auto, executor: Backend::Rten, ..args("0000") };
        assert_eq!(refused(&rten), format!("precision: {name} needs a plan; rten runs models in fp32 alone"));
    }
    let folder = BenchArgs { cuda_lib_dir: Some("/l".into()), ..args("0000") };
    assert_eq!(refused(&folder), "cuda-lib-dir: has no effect while device is cpu");
    let few = BenchArgs { threads: vec![2], cpus: Some(CpuList(vec![0])), ..args("0000") };
    assert_eq!(refused(&few), "cpus: [0] are too few for 2 threads");
    let rten = BenchArgs { precision: Precision::Int8, executor: Backend::Rten, ..args("0000") };
    assert!(refused(&rten).starts_with("precision: int8 needs a plan"));
    let stray = BenchArgs { calibration: Some("r.json".into()), ..args("0000") };
    assert_eq!(refused(&stray), "calibration: needs --precision int8");
    assert!(refused(&args("nothing")).contains("nothing.onnx"));
}

#[test]
fn samples_are_all_times_in_their_order() {
    let row = &lines(&BenchArgs { samples: true, batch: vec![2], ..args("0000") })[2];
    let samples: Vec<f64> = row["samples_us"].as_array().unwrap().iter().map(|us| us.as_f64().unwrap()).collect();
    assert_eq!(samples.len() as u64, row["runs"].as_u64().unwrap());
    let mut sorted: Vec<u64> = samples.iter().map(|us| (us * 1e3).round() as u64).collect();
    sorted.sort_unstable();
    assert!((machine::percentile(&sorted, 0.5) as f64 / 1e3 - row["p50_us"].as_f64().unwrap()).abs() < 1e-3);
    crate::app::engine::documented(row, &[]);
}

#[test]
fn inputs_take_turns_and_none_is_another() {
    let loaded = Loaded::new(&args("0001"), &Requested::of(&args("0001")).unwrap(), cpu::CpuOptions::default()).unwrap();
    let shape = Shape { batch: 4, length: Some(2) };
    let turns = loaded.turns(shape, true).unwrap();
    assert_eq!(turns.len(), TURNS);
    for (at, turn) in turns.iter().enumerate() {
        assert!(turns[..at].iter().all(|other| other != turn), "{at}");
    }
    assert_eq!(loaded.turns(shape, false).unwrap(), turns[..1]);
}

#[test]
fn numbers_of_threads_do_not_stand_in_one_anothers_way() {
    let usable = cpu::threads::usable();
    let [first, second, ..] = usable[..] else { return lapwing_testing::not_run("this machine has one processor") };
    let cpus = Some(CpuList(vec![first, second]));
    let lines = lines(&BenchArgs { threads: vec![2, 1], cpus, batch: vec![1], ..args("0000") });
    let threads: Vec<_> = lines.iter().map(|line| (line["threads"].as_u64().unwrap(), line["case"].as_str())).collect();
    let of = |count| [(count, Some("peaks")), (count, Some("cold_start")), (count, None)];
    assert_eq!(threads, [of(1), of(2)].concat());
}

#[test]
fn people_get_a_table() {
    let text = told(&BenchArgs { json: false, batch: vec![1], ..args("0000") }).unwrap();
    for part in ["run by plan on cpu, fp32, 1 thread\n", "\npeaks   ", "\ncold start ", "\n batch  length "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn ids_stay_below_their_tables() {
    let loaded = Loaded::new(&args("0001"), &Requested::of(&args("0001")).unwrap(), cpu::CpuOptions::default()).unwrap();
    let plan = loaded.model.plan().unwrap();
    let at = |name: &str| plan.inputs.iter().position(|port| port.name == name).unwrap();
    let most = plan.ids_below(at("ids")).unwrap();
    assert_eq!(plan.ids_below(at("mask")), None);
    let inputs = loaded.inputs(Shape { batch: 64, length: Some(2) }, SEED).unwrap();
    let elements =
        |at: usize| -> Vec<i64> { inputs[at].data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect() };
    let ids = elements(at("ids"));
    assert!(ids.iter().all(|id| (0..most as i64).contains(id)) && ids.iter().any(|id| *id > 1), "{ids:?} below {most}");
    assert!(elements(at("mask")).iter().all(|one| *one == 1));
}
