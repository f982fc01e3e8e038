//! The server's metadata of itself and its models.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::against;
use super::fake::{Does, adder, fake};
use crate::Limits;

#[tokio::test]
async fn server_and_model_describe_themselves() {
    against(adder(), Limits::default(), async |client| {
        let server = client.get("/v2").await.json();
        assert_eq!(server["name"], "lapwing");
        assert_eq!(server["extensions"], json!(["binary_tensor_data", "model_repository", "parameters"]));
        let expected = json!({
            "name": "m", "versions": ["1"], "platform": "lapwing_onnx",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}, {"name": "ids", "datatype": "INT64", "shape": [-1]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}, {"name": "ids", "datatype": "INT64", "shape": [-1]},
                {"name": "flags", "datatype": "BOOL", "shape": [-1]}],
            "parameters": {"version": "1", "executor": "plan", "device": "cpu", "precision": "fp32"},
        });
        assert_eq!(client.get("/v2/models/m").await.json(), expected);
        assert_eq!(client.get("/v2/models/m/versions/1").await.json(), expected);
    })
    .await;
}

#[tokio::test]
async fn a_name_with_any_letters_is_asked_for_in_percent() {
    against(vec![fake("org/m é", "1", Does::Add)], Limits::default(), async |client| {
        assert_eq!(client.get("/v2/models/org%2Fm%20%C3%A9").await.json()["name"], "org/m é");
        assert_eq!(client.get("/v2/models/org%2Fm%20%C3%A9/versions/1/ready").await.status, 200);
        assert_eq!(client.get("/v2/models/%ff").await.status, 400);
    })
    .await;
}

#[tokio::test]
async fn readiness_is_the_models() {
    let (warm, cold) = (fake("warm", "1", Does::Add), fake("cold", "1", Does::Add));
    cold.ready.store(false, Ordering::SeqCst);
    against(vec![warm.clone() as _, cold.clone()], Limits::default(), async |client| {
        assert_eq!(client.get("/v2/health/live").await.json(), json!({"live": true}));
        let got = client.get("/v2/health/ready").await;
        assert_eq!((got.status.as_u16(), got.json()), (503, json!({"ready": false})));
        assert_eq!(client.get("/v2/models/warm/ready").await.json(), json!({"name": "warm", "ready": true}));
        assert_eq!(client.get("/v2/models/cold/versions/1/ready").await.status, 503);
        let got = client.get("/readyz").await;
        assert_eq!((got.status.as_u16(), &*got.body), (503, &b"cold version 1 is not ready\n"[..]));
        let index = client.send(client.post("/v2/repository/index"), "").await.json();
        assert_eq!(
            index[0],
            json!({"name": "cold", "version": "1", "state": "UNAVAILABLE", "reason": "not warm yet, or being stopped"})
        );
        let ready = client.send(client.post("/v2/repository/index"), r#"{"ready":true}"#).await.json();
        assert_eq!(ready, json!([{"name": "warm", "version": "1", "state": "READY", "reason": ""}]));
        assert_eq!(client.send(client.post("/v2/repository/index"), "nonsense").await.status, 400);
        cold.ready.store(true, Ordering::SeqCst);
        assert_eq!(client.get("/v2/health/ready").await.status, 200);
        assert_eq!(client.get("/readyz").await.status, 200);
    })
    .await;
}
