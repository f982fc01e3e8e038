//! Inference over REST: JSON and binary tensors both ways, and the metadata of answers.

use serde_json::json;

use super::against;
use super::fake::{Does, STAGES, adder, fake, le, only};
use crate::Limits;
use lapwing_attribution::{Rules, server_timing};
use lapwing_ledger::{Ledger, ReportPlace, Stage, Stamp};

const X: &str = r#"{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2.5],[-3,0.1]]}]}"#;

#[tokio::test]
async fn json_flat_and_nested_in_any_order_of_keys_gives_json() {
    against(adder(), Limits::default(), async |client| {
        let flat =
            r#"{"id":"a-7","inputs":[{"data":[1,2.5,-3,0.1],"datatype":"FP32","extra":{"k":[1]},"shape":[2,2],"name":"x"}]}"#;
        for (body, id) in [(X, None), (flat, Some("a-7"))] {
            let got = client.infer("m", body).await;
            assert_eq!((got.status.as_u16(), got.header("content-type")), (200, "application/json"), "{:?}", got.body);
            let json = got.json();
            assert_eq!(json.get("id").and_then(|id| id.as_str()), id);
            assert_eq!((&json["model_name"], &json["model_version"]), (&json!("m"), &json!("1")));
            let output = &json["outputs"][0];
            assert_eq!(
                (&output["name"], &output["datatype"], &output["shape"], output.get("parameters")),
                (&json!("y"), &json!("FP32"), &json!([2, 2]), None)
            );
            let text = std::str::from_utf8(&got.body).unwrap();
            assert!(text.contains(r#""data":[2.0,3.5,-2.0,1.1]"#), "shortest, as f32: {text}");
        }
    })
    .await;
}

#[tokio::test]
async fn every_datatype_that_json_can_say_goes_in_and_out() {
    against(adder(), Limits::default(), async |client| {
        let body = json!({"inputs": [
            {"name": "ids", "shape": [3], "datatype": "INT64", "data": [i64::MIN, -1, i64::MAX]},
            {"name": "flags", "shape": [2], "datatype": "BOOL", "data": [true, false]},
            {"name": "d", "shape": [2], "datatype": "FP64", "data": [0.1, 9_007_199_254_740_993_u64]},
            {"name": "u", "shape": [2, 0], "datatype": "UINT8", "data": []},
        ]});
        let got = client.infer("m", body.to_string()).await.json();
        assert_eq!(got["outputs"][0]["data"], json!([i64::MIN, -1, i64::MAX]));
        assert_eq!(got["outputs"][1]["data"], json!([true, false]));
        assert_eq!(got["outputs"][2]["data"], json!([0.1, 9_007_199_254_740_992_f64]));
        assert_eq!((&got["outputs"][3]["data"], &got["outputs"][3]["shape"]), (&json!([]), &json!([2, 0])));
    })
    .await;
}

#[tokio::test]
async fn binary_goes_in_and_out_and_beside_json() {
    against(adder(), Limits::default(), async |client| {
        let json = r#"{"id":"b","parameters":{"binary_data_output":true},"inputs":[
            {"name":"ids","shape":[1],"datatype":"INT64","data":[9]},
            {"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],
            "outputs":[{"name":"y"},{"name":"ids","parameters":{"binary_data":false}}]}"#;
        let got = client.infer_binary("m", json, &le(&[1.0, f32::NAN])).await;
        assert_eq!((got.status.as_u16(), got.header("content-type")), (200, "application/octet-stream"), "{:?}", got.body);
        let length: usize = got.header("inference-header-content-length").parse().unwrap();
        let head: serde_json::Value = serde_json::from_slice(&got.body[..length]).unwrap();
        assert_eq!(head["id"], "b");
        assert_eq!(
            (&head["outputs"][0]["name"], &head["outputs"][0]["parameters"]),
            (&json!("y"), &json!({"binary_data_size": 8}))
        );
        assert_eq!((head["outputs"][0].get("data"), &head["outputs"][1]["data"]), (None, &json!([9])));
        let values: Vec<f32> = got.body[length..].as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect();
        assert!(
            values[0] == 2.0 && values[1].is_nan() && values.len() == 2,
            "what is not finite goes as binary data: {values:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn outputs_select_and_are_in_the_order_asked_for() {
    against(adder(), Limits::default(), async |client| {
        let body = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[0,1]},
            {"name":"ids","shape":[1],"datatype":"INT64","data":[5]}],"outputs":[{"name":"ids"},{"name":"y"}]}"#;
        let got = client.infer("m", body).await.json();
        let names: Vec<_> = got["outputs"].as_array().unwrap().iter().map(|o| o["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["ids", "y"]);
        let got = client.infer("m", body.replace(r#"{"name":"ids"},"#, "").replace(r#""y""#, r#""z""#)).await;
        assert_eq!((got.status.as_u16(), got.error().as_str()), (400, "outputs: there is no z"));
    })
    .await;
}

#[tokio::test]
async fn the_answer_names_its_executor_and_lapwings_own_reader_reads_its_stages() {
    against(adder(), Limits::default(), async |client| {
        let got = client.infer("m", X).await;
        assert_eq!(got.header("lapwing-executor"), "plan");
        let expected = json!({"executor": "plan", "device": "cpu", "precision": "fp32", "batch_calls": 4, "batch_rows": 8,
            "batch_tokens": 32, "batch_flops": 96, "batch_useful_flops": 70, "padding_waste": 0.25});
        assert_eq!(got.json()["parameters"], expected);
        let mut ledger = Ledger::open(Stamp::now(), 0);
        assert_eq!(server_timing::report(&got.headers, &Rules::default(), ReportPlace::Head, &mut ledger), 0);
        let read: Vec<_> = ledger.reports.iter().map(|r| (r.stage, r.duration_ns)).collect();
        let stages: Vec<_> = read.iter().map(|(stage, _)| *stage).collect();
        assert_eq!(stages, [Stage::Preprocessing, Stage::Queue, Stage::Forward, Stage::Postprocessing]);
        assert_eq!((read[1].1, read[2].1), (STAGES.queue_ns, STAGES.forward_ns));
        let own = read[0].1 > STAGES.preprocessing_ns && read[3].1 > STAGES.postprocessing_ns;
        assert!(own, "serving's own time is in the first and the last: {read:?}");
    })
    .await;
}

#[tokio::test]
async fn the_highest_version_by_number_is_the_default() {
    let models = ["9", "10", "2", "beta"].map(|version| fake("m", version, Does::Add) as _).into();
    against(models, Limits::default(), async |client| {
        let version = |got: super::Got| got.json()["model_version"].as_str().unwrap().to_owned();
        assert_eq!(version(client.infer("m", X).await), "10");
        assert_eq!(version(client.infer("m/versions/9", X).await), "9");
        assert_eq!(version(client.infer("m/versions/beta", X).await), "beta");
        assert_eq!(client.get("/v2/models/m").await.json()["versions"], json!(["beta", "2", "9", "10"]));
    })
    .await;
}

#[tokio::test]
async fn packed_bodies_are_unpacked() {
    use std::io::Write;
    against(adder(), Limits::default(), async |client| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(X.as_bytes()).unwrap();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(X.as_bytes()).unwrap();
        for (name, body) in [("gzip", gzip.finish().unwrap()), ("deflate", zlib.finish().unwrap())] {
            let request = client.post("/v2/models/m/infer").header("content-encoding", name);
            let got = client.send(request, body).await;
            assert_eq!(got.json()["outputs"][0]["data"][1], 3.5, "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn large_tensors_are_worked_on_elsewhere_and_come_out_the_same() {
    against(only(Does::Add), Limits::default(), async |client| {
        let n = 100_000_usize;
        let values: Vec<f32> = (0..2 * n).map(|i| i as f32 * 0.37).collect();
        let body = json!({"inputs": [{"name": "x", "shape": [n, 2], "datatype": "FP32", "data": values}]});
        let got = client.infer("m", body.to_string()).await.json();
        let came: Vec<f32> = serde_json::from_value(got["outputs"][0]["data"].clone()).unwrap();
        assert!(came.len() == 2 * n && came.iter().zip(&values).all(|(y, x)| *y == x + 1.0));
    })
    .await;
}
