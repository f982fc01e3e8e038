//! Every error, by its status and its text.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::against;
use super::fake::{Does, adder, fake, le, only};
use crate::{Catalogue, CatalogueError, Limits};
use lapwing_model::service::{CallError, Servable};
use lapwing_settings::{Period, Size};

const X: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

#[tokio::test]
async fn a_bad_request_is_told_its_field_value_and_reason() {
    let cases = [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{}", "missing field `inputs` at line 1 column 2"),
        ("[1]", "inputs[?]"),
        (
            r#"{"inputs":[{"name":"x","shape":[1,-2],"datatype":"FP32","data":[1,2]}]}"#,
            "inputs[0].shape[1]: invalid value: integer `-2`",
        ),
        (r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP8","data":[1,2]}]}"#, r#"inputs[0] (x): datatype: "FP8" is none"#),
        (
            r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,true]}]}"#,
            "inputs[0] (x): data: element 1: true is no FP32",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1]}]}"#,
            "inputs[0] (x): data: holds 1 elements where the shape asks for 2",
        ),
        (r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":7}]}"#, "inputs[0] (x): data: must be an array"),
        (r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32"}]}"#, "inputs[0] (x): data: is missing"),
        (
            r#"{"inputs":[{"name":"x","shape":[9007199254740993,9007199254740993],"datatype":"FP32","data":[]}]}"#,
            "more elements than can be counted",
        ),
        (r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP16","data":[1,2]}]}"#, "FP16 comes as binary data only"),
        (
            r#"{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}"#,
            "binary_data_size: 8 where 0 bytes are left",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":7}}]}"#,
            "binary_data_size: 7 where FP32 of shape [2] takes 8",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2],"parameters":{"binary_data_size":8}}]}"#,
            "must not stand beside binary_data_size",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","parameters":{"shared_memory_region":"r"}}]}"#,
            "there is no shared memory here",
        ),
        (r#"{"inputs":[],"parameters":{"timeout":"soon"}}"#, "parameters.timeout: invalid type: string"),
        (r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"classification":3}}]}"#, "outputs[0] (y): classification"),
        (r#"{"inputs":[],"id":"#, "EOF"),
        (r#"{"inputs":[]} x"#, "trailing characters"),
    ];
    against(adder(), Limits::default(), async |client| {
        for (body, says) in cases {
            let got = client.infer("m", body).await;
            assert_eq!(got.status.as_u16(), 400, "{body}");
            let error = got.error();
            assert!(says == "inputs[?]" || error.contains(says), "{body}: {error}");
            assert_eq!(got.header("lapwing-executor"), "plan");
        }
    })
    .await;
}

#[tokio::test]
async fn binary_data_that_does_not_fit_is_refused() {
    against(adder(), Limits::default(), async |client| {
        let json = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}"#;
        let got = client.infer_binary("m", json, &le(&[1.0, 2.0, 3.0])).await;
        assert_eq!((got.status.as_u16(), got.error().as_str()), (400, "binary data: 4 bytes are left that belong to no input"));
        for (length, says) in
            [("9999", "inference-header-content-length: 9999 is more than the body's"), ("x", "is no number of bytes")]
        {
            let request = client.post("/v2/models/m/infer").header("Inference-Header-Content-Length", length);
            let got = client.send(request, X).await;
            assert!(got.status == 400 && got.error().contains(says), "{}", got.error());
        }
    })
    .await;
}

#[tokio::test]
async fn unknown_models_versions_and_paths_are_404_and_name_the_known() {
    let models: Vec<Arc<dyn Servable>> = vec![fake("a", "1", Does::Add), fake("b", "3", Does::Add), fake("b", "12", Does::Add)];
    against(models, Limits::default(), async |client| {
        let got = client.infer("c", X).await;
        assert_eq!((got.status.as_u16(), got.error().as_str()), (404, r#"model "c" is not served here; there is "a", "b""#));
        let got = client.infer("b/versions/4", X).await;
        assert_eq!((got.status.as_u16(), got.error().as_str()), (404, r#"model "b" has no version "4"; there is "3", "12""#));
        for path in ["/v2/models/c", "/v2/models/c/ready", "/v2/models/a/versions/2/ready", "/v2/nothing", "/", "/v2/models"] {
            let got = client.get(path).await;
            assert!(got.status == 404 && !got.error().is_empty(), "{path}");
        }
        let got = client.get("/v2/models/a/infer").await;
        assert_eq!((got.status.as_u16(), got.error().as_str()), (405, "GET: is not the method of /v2/models/a/infer"));
    })
    .await;
}

#[tokio::test]
async fn what_the_model_says_becomes_a_status() {
    let input = CallError::Input { tensor: "x".to_owned(), reason: "2 axes, not 3".to_owned() };
    let cases = [
        (input, 400, "x: 2 axes, not 3"),
        (CallError::Full { waiting: 64 }, 429, "queue: 64 calls are waiting, which is the limit"),
        (CallError::Deadline { waited_ns: 5 }, 504, "deadline: passed after 5 ns in the queue"),
        (CallError::NotReady { reason: "is being warmed".to_owned() }, 503, "model: is being warmed"),
        (CallError::Device { reason: "cuda:0: is lost".to_owned() }, 503, "device: cuda:0: is lost"),
        (CallError::Failed { reason: "a kernel".to_owned() }, 500, "model: a kernel"),
    ];
    for (error, status, text) in cases {
        against(only(Does::Fails(error)), Limits::default(), async |client| {
            let got = client.infer("m", X).await;
            assert_eq!((got.status.as_u16(), got.error().as_str()), (status, text));
            assert_eq!(got.header("retry-after"), if status == 429 { "1" } else { "" });
        })
        .await;
    }
}

#[tokio::test]
async fn a_number_that_json_has_not_is_named_and_never_null() {
    for (value, says) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        against(only(Does::Odd(value)), Limits::default(), async |client| {
            let got = client.infer("m", X).await;
            let text = format!("outputs (y): element 1: {says} cannot be said in JSON");
            assert_eq!((got.status.as_u16(), got.error()), (500, text));
        })
        .await;
    }
}

#[tokio::test]
async fn bodies_over_the_limit_are_413_however_they_come() {
    let limits = Limits { max_body: Size(200), ..Limits::default() };
    against(adder(), limits, async |client| {
        let long = X.replace("[1,2]}", &format!("[1,{}2]}}", " ".repeat(300)));
        let got = client.infer("m", long.clone()).await;
        assert_eq!((got.status.as_u16(), got.error().as_str()), (413, "the body is larger than 200 bytes, which is the limit"));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut gzip, long.as_bytes()).unwrap();
        let packed = gzip.finish().unwrap();
        assert!(packed.len() < 200);
        let got = client.send(client.post("/v2/models/m/infer").header("content-encoding", "gzip"), packed).await;
        assert_eq!(got.status, 413);
        let got = client.send(client.post("/v2/models/m/infer").header("content-encoding", "zstd"), X).await;
        assert_eq!((got.status.as_u16(), got.error().starts_with("content-encoding: \"zstd\"")), (415, true));
        let got = client.send(client.post("/v2/models/m/infer").header("content-encoding", "gzip"), X).await;
        assert_eq!((got.status.as_u16(), got.error().starts_with("the body cannot be unpacked")), (400, true));
        assert_eq!(client.infer("m", X).await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn deadlines_come_from_the_request_else_from_the_limits() {
    let model = fake("m", "1", Does::Hangs);
    let limits = Limits { timeout: Some(Period::from_millis(40)), ..Limits::default() };
    against(vec![model.clone() as _], limits, async |client| {
        let got = client.infer("m", X.replace("{\"inputs\"", "{\"parameters\":{\"timeout\":20000},\"inputs\"")).await;
        assert_eq!((got.status.as_u16(), got.error().as_str()), (504, "deadline: passed before the model answered"));
        let own = model.timeout_ns.load(Ordering::SeqCst);
        assert!((1..=20_000_000).contains(&own), "{own}");
        assert_eq!(client.infer("m", X).await.status, 504);
        let default = model.timeout_ns.load(Ordering::SeqCst);
        assert!((20_000_001..=40_000_000).contains(&default), "{default}");
    })
    .await;
    let model = fake("m", "1", Does::Add);
    against(vec![model.clone() as _], Limits::default(), async |client| {
        assert_eq!(client.infer("m", X).await.status, 200);
        assert_eq!(model.timeout_ns.load(Ordering::SeqCst), 0);
    })
    .await;
}

#[tokio::test]
async fn more_than_may_be_in_flight_are_429() {
    let turn = Arc::new(Semaphore::new(0));
    let model = fake("m", "1", Does::Waits(Arc::clone(&turn)));
    let limits = Limits { max_in_flight: 1, ..Limits::default() };
    against(vec![model.clone() as _], limits, async |client| {
        let (first, ()) = tokio::join!(client.infer("m", X), async {
            while model.calls.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let got = client.infer("m", X).await;
            assert_eq!((got.status.as_u16(), got.header("retry-after")), (429, "1"));
            assert_eq!(got.error(), "1 requests are in flight, which is the limit");
            assert_eq!(client.get("/v2/health/live").await.status, 200);
            turn.add_permits(1);
        });
        assert_eq!((first.status.as_u16(), model.calls.load(Ordering::SeqCst)), (200, 1));
    })
    .await;
}

#[test]
fn two_models_of_one_name_and_version_cannot_be_served() {
    let made =
        |names: &[(&str, &str)]| Catalogue::new(names.iter().map(|(n, v)| fake(n, v, Does::Add) as _).collect()).map(|_| ());
    let twice = CatalogueError::Twice { name: "m".to_owned(), version: "1".to_owned() };
    assert_eq!(made(&[("m", "1"), ("k", "1"), ("m", "1")]), Err(twice));
    assert_eq!(made(&[("m", "1"), ("k", "1"), ("m", "2")]), Ok(()));
    let unnamed = CatalogueError::Unnamed { name: String::new(), version: "1".to_owned() };
    assert_eq!(made(&[("", "1")]), Err(unnamed));
    assert_eq!(made(&[]), Ok(()));
}
