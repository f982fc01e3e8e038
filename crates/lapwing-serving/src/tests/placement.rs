//! Where a model runs, as clients, probes and scrapes see it: on a GPU, moved to the processor, and ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;

use super::fake::{Does, fake, placement};
use super::{Client, against};
use crate::Limits;
use lapwing_model::service::{CallError, FallbackCause, Placement};

const X: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

/// The lines of a family.
async fn lines(client: &Client, family: &str) -> Vec<String> {
    let text = client.get("/metrics").await.body;
    let lines = std::str::from_utf8(&text).unwrap().lines().filter(|line| line.starts_with(family));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_move_is_seen_at_once_in_answers_pages_and_metrics() {
    let model = fake("m", "1", Does::Add);
    *model.placement.lock() = Arc::new(placement("cuda:0", Some("NVIDIA H200"), None));
    against(vec![model.clone() as _], Limits::default(), async |client| {
        let on = async || {
            let parameters = client.infer("m", X).await.json()["parameters"].clone();
            (parameters["device"].clone(), parameters["precision"].clone())
        };
        assert_eq!(on().await, (json!("cuda:0"), json!("fp16")));
        let parameters = client.get("/v2/models/m").await.json()["parameters"].clone();
        let gpu =
            json!({"version": "1", "executor": "plan", "device": "cuda:0", "device_name": "NVIDIA H200", "precision": "fp16"});
        assert_eq!(parameters, gpu);
        let info = r#"lapwing_engine_device_info{model="m",version="1",device="cuda:0",name="NVIDIA H200",precision="fp16"} 1"#;
        assert_eq!(lines(&client, "lapwing_engine_device_info").await, [info]);
        assert_eq!(lines(&client, "lapwing_engine_fallback").await, [""; 0]);

        *model.placement.lock() = Arc::new(placement("cpu", None, Some(FallbackCause::Device)));
        assert_eq!(on().await, (json!("cpu"), json!("fp32")));
        let parameters = client.get("/v2/models/m").await.json()["parameters"].clone();
        let fallback = "device: libcuda.so.1: is not there";
        let cpu = json!({"version": "1", "executor": "plan", "device": "cpu", "precision": "fp32", "fallback": fallback});
        assert_eq!(parameters, cpu);
        let info = r#"lapwing_engine_device_info{model="m",version="1",device="cpu",name="",precision="fp32"} 1"#;
        let counted = r#"lapwing_engine_fallback_total{model="m",reason="device"} 1"#;
        for _ in 0..2 {
            assert_eq!(lines(&client, "lapwing_engine_device_info").await, [info], "where it was is no more");
            assert_eq!(lines(&client, "lapwing_engine_fallback").await, [counted], "counted once");
        }
    })
    .await;
}

#[tokio::test]
async fn versions_that_fell_back_when_they_were_loaded_are_counted_together() {
    let models = ["1", "2"].map(|version| {
        let model = fake("m", version, Does::Add);
        *model.placement.lock() = Arc::new(placement("cpu", None, Some(FallbackCause::NoDriver)));
        model as _
    });
    against(models.into(), Limits::default(), async |client| {
        let counted = r#"lapwing_engine_fallback_total{model="m",reason="no_driver"} 2"#;
        assert_eq!(lines(&client, "lapwing_engine_fallback").await, [counted]);
        assert_eq!(lines(&client, "lapwing_engine_device_info").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_model_whose_device_failed_is_named_with_what_the_device_reported() {
    let fault = || "cuda:0: is lost".to_owned();
    let model = fake("m", "3", Does::Fails(CallError::Device { reason: fault() }));
    *model.placement.lock() = Arc::new(Placement { fault: Some(fault()), ..placement("cuda:0", Some("NVIDIA H200"), None) });
    model.ready.store(false, Ordering::SeqCst);
    against(vec![model as _, fake("other", "1", Does::Add)], Limits::default(), async |client| {
        let got = client.get("/readyz").await;
        let told = "m version 3 cannot run any more: device: cuda:0: is lost\n";
        assert_eq!((got.status.as_u16(), &*got.body), (503, told.as_bytes()));
        assert_eq!(client.get("/v2/health/ready").await.status, 503);
        let index = client.send(client.post("/v2/repository/index"), "").await.json();
        assert_eq!((&index[0]["state"], &index[0]["reason"]), (&json!("UNAVAILABLE"), &json!("device: cuda:0: is lost")));
        assert_eq!(client.get("/v2/models/m").await.json()["parameters"]["fault"], "cuda:0: is lost");
        assert_eq!(client.infer("m", X).await.status, 503);
        let ready = lines(&client, "lapwing_engine_ready").await;
        let wanted = [r#"lapwing_engine_ready{model="m",version="3"} 0"#, r#"lapwing_engine_ready{model="other",version="1"} 1"#];
        assert!(wanted.iter().all(|line| ready.iter().any(|is| is == line)), "{ready:?}");
        let failed = r#"lapwing_engine_requests_total{model="m",version="3",executor="plan",outcome="failed"} 1"#;
        assert!(lines(&client, "lapwing_engine_requests").await.iter().any(|line| line == failed), "it is no wait");
        assert_eq!(client.infer("other", X).await.status, 200);
    })
    .await;
}
