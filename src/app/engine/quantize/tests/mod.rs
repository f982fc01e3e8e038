//! The output of `quantize` for the fixtures, on synthetic rows, and its errors for rows that do not fit.

mod numpy;

use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value as Json;

use self::numpy::{npy, npz};
use super::*;

fn args(model: &str, calibrate: &Path) -> QuantizeArgs {
    QuantizeArgs {
        model: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans").join(format!("{model}.onnx")),
        calibrate: calibrate.to_owned(),
        against: None,
        batch: 8,
        seconds: 0.005,
        threads: 1,
        cpus: None,
        output: None,
        json: true,
    }
}

fn told(args: &QuantizeArgs) -> Result<String, String> {
    let mut out = Vec::new();
    run(args, &mut out).map_err(|e| e.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

fn lines(args: &QuantizeArgs) -> Vec<Json> {
    told(args).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn floats(shape: &str, count: usize, seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let body: Vec<u8> = (0..count).flat_map(|_| (random.random::<f32>() * 4.0 - 2.0).to_le_bytes()).collect();
    npy("'<f4'", shape, &body)
}

fn wholes(rows: usize, length: usize, of: impl Fn(usize) -> i64) -> Vec<u8> {
    let body: Vec<u8> = (0..rows * length).flat_map(|at| of(at).to_le_bytes()).collect();
    npy("'<i8'", &format!("({rows}, {length})"), &body)
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_model_is_compared_in_three_ways() {
    let folder = tempfile::tempdir().unwrap();
    let rows = put(folder.path(), "rows.npy", &floats("(20, 64)", 20 * 64, 1));
    let ranges = folder.path().join("ranges.json");
    let reports = lines(&QuantizeArgs { output: Some(ranges.clone()), ..args("0003", &rows) });
    let named: Vec<_> = reports.iter().map(|r| (r["precision"].as_str().unwrap(), r["ranges"].as_str())).collect();
    assert_eq!(named, [("fp32", None), ("int8", Some("dynamic")), ("int8", Some("static"))]);
    // 64 by 31 and 129 by 64 are done in bytes, 31 by 129 is too narrow
    let counts = |report: &Json| ["products", "int8_products", "static_products"].map(|name| report[name].as_u64().unwrap());
    assert_eq!([counts(&reports[0]), counts(&reports[1])], [[3, 0, 0], [3, 2, 0]]);
    let fixed = counts(&reports[2])[2];
    assert!(fixed >= 1, "{}", reports[2]);
    assert!(reports[1]["weight_bytes"].as_u64() < reports[0]["weight_bytes"].as_u64());
    assert_eq!(reports[0]["speed_up"], 1.0);
    reports.iter().for_each(|report| super::super::documented(report, &[]));
    assert_eq!(reports[0]["outputs"], serde_json::json!([]));
    for report in &reports[1..] {
        let output = &report["outputs"][0];
        assert_eq!((&output["name"], &output["rows"]), (&"out".into(), &20.into()));
        assert!(output["cosine_min"].as_f64() >= Some(0.98) && output["max_error"].as_f64() > Some(0.0), "{report}");
        assert!(output["mean_error"].as_f64() <= output["max_error"].as_f64());
        assert!(report["p50_us"].as_f64() > Some(0.0) && report["speed_up"].as_f64() > Some(0.0));
    }
    // what was written is what an executor takes, and it is that one
    let calibration = Calibration::read(&ranges).unwrap();
    assert_eq!((calibration.model.as_str(), calibration.ranges.len() as u64), ("0003", fixed));
    let graph = ShapedGraph::read(&args("0003", &rows).model).unwrap();
    let threads = Arc::new(Threads::one());
    let model = load(&graph, &threads, calibration.precision(&graph).unwrap()).unwrap();
    assert_eq!(model.plan_executor().unwrap().fixed_nodes() as u64, fixed);
    let other = ShapedGraph::read(&args("0000", &rows).model).unwrap();
    assert!(calibration.precision(&other).unwrap_err().to_string().starts_with("ranges: "));
}

#[test]
fn tokens_that_are_masked_out_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    // rows of 5 tokens, the last two of which are masked out
    let mask = wholes(6, 5, |at| i64::from(at % 5 < 3));
    let given = |seed: i64| {
        let ids = wholes(6, 5, |at| (at as i64 * 7 + seed) % 11);
        npz(&[("ids.npy", ids), ("mask.npy", mask.clone()), ("types.npy", wholes(6, 5, |_| 0))])
    };
    let (one, two) = (put(folder.path(), "one.npz", &given(1)), put(folder.path(), "two.npz", &given(4)));
    let reports = lines(&QuantizeArgs { against: Some(two), batch: 4, ..args("0014", &one) });
    let rows = |output: &str| {
        let outputs = reports[1]["outputs"].as_array().unwrap();
        outputs.iter().find(|o| o["name"] == output).unwrap()["rows"].as_u64().unwrap()
    };
    assert_eq!((rows("hidden"), rows("pooled")), (6 * 3, 6));
    assert_eq!((&reports[0]["length"], &reports[0]["batch"], &reports[0]["rows"]), (&5.into(), &4.into(), &6.into()));
    assert!(reports[1]["int8_products"].as_u64() > Some(0));
    for output in reports[1]["outputs"].as_array().unwrap() {
        assert!(output["cosine_min"].as_f64() >= Some(0.98), "{output}");
    }
    let text = told(&QuantizeArgs { json: false, ..args("0014", &one) }).unwrap();
    assert!(text.contains("\nint8 dynamic") && text.contains("\nint8 static") && text.contains("cosine min"), "{text}");
}

#[test]
fn ranges_are_found_without_what_is_masked_out() {
    let mut kept = vec![9.0];
    select_rows(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, &[true, false, true], &mut kept);
    assert_eq!(kept, [1.0, 2.0, 5.0, 6.0]);
}

#[test]
fn rows_that_do_not_fit_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |model: &str, name: &str, bytes: &[u8]| {
        let error = told(&args(model, &put(folder.path(), name, bytes))).unwrap_err();
        let (argument, rest) = error.split_once(": ").unwrap();
        assert_eq!(argument, "calibrate", "{error}");
        rest.split_once(&format!("{name}: ")).unwrap().1.to_owned()
    };
    let bytes = floats("(2, 63)", 126, 1);
    assert_eq!(refused("0003", "shape.npy", &bytes), "in: expected shape [-1, 64], got [2, 63]");
    assert_eq!(refused("0003", "rank.npy", &floats("(64,)", 64, 1)), "in: expected shape [-1, 64], got [64]");
    assert_eq!(refused("0003", "type.npy", &wholes(2, 64, |_| 1)), "in: expected FP32, got INT64");
    assert_eq!(refused("0003", "none.npy", &floats("(0, 64)", 0, 1)), "in: expected shape [-1, 64], got [0, 64]");
    assert_eq!(refused("0003", "text.npy", b"rows"), "header: not a .npy file");
    let one = refused("0014", "one.npy", &wholes(2, 5, |_| 1));
    assert!(one.starts_with("is one array, and the model has the inputs [\"ids\", "), "{one}");
    let ids = || ("ids.npy", wholes(2, 5, |_| 1));
    let missing = refused("0014", "missing.npz", &npz(&[ids()]));
    assert!(missing.contains(": is an input of the model, and none of the arrays, [\"ids\"]"), "{missing}");
    let uneven = npz(&[ids(), ("mask.npy", wholes(2, 4, |_| 1)), ("types.npy", wholes(2, 5, |_| 0))]);
    assert!(refused("0014", "uneven.npz", &uneven).contains("tokens, the inputs before it "));
    let more =
        npz(&[ids(), ("mask.npy", wholes(2, 5, |_| 1)), ("types.npy", wholes(2, 5, |_| 0)), ("labels.npy", wholes(2, 1, |_| 0))]);
    assert_eq!(refused("0014", "more.npz", &more), "labels: is no input of the model");
    let refused = told(&args("refused-conv", &folder.path().join("more.npz"))).unwrap_err();
    assert!(refused.starts_with("precision: int8 needs a plan, and the model has none: the_conv"), "{refused}");
    let nan = npy("'<f4'", "(1, 64)", &[f32::NAN.to_le_bytes(); 64].concat());
    let nan = told(&args("0003", &put(folder.path(), "nan.npy", &nan))).unwrap_err();
    assert!(nan.contains("is not finite"), "{nan}");
}
