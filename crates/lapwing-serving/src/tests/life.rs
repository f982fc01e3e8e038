//! Connections: both protocols on one port, many at once, clients that disconnect, and the shutdown.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::client::legacy::Client as Legacy;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::fake::{Does, adder, fake};
use super::{Client, against};
use crate::Limits;
use lapwing_settings::Period;

fn x(value: usize) -> String {
    format!(r#"{{"inputs":[{{"name":"x","shape":[1,2],"datatype":"FP32","data":[{value},2]}}]}}"#)
}

async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn one_port_speaks_both_protocols_and_calls_do_not_mix() {
    against(adder(), Limits::default(), async |client| {
        let h2 = Client::of(client.base.clone(), true, client.stop.clone());
        let ask = async |i: usize| {
            let client = if i.is_multiple_of(2) { &client } else { &h2 };
            let got = client.infer("m", x(i)).await;
            assert_eq!(got.json()["outputs"][0]["data"][0], (i + 1) as f64);
        };
        futures_util::future::join_all((0..64).map(ask)).await;
        let version = h2.http.get(format!("{}/v2", h2.base).parse().unwrap()).await.unwrap().version();
        assert_eq!(version, http::Version::HTTP_2);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_goes_away_is_counted_and_costs_nothing_else() {
    let turn = Arc::new(Semaphore::new(0));
    let model = fake("m", "1", Does::Waits(Arc::clone(&turn)));
    against(vec![model.clone() as _], Limits::default(), async |client| {
        let body = x(1);
        let mut gone = TcpStream::connect(client.base.trim_start_matches("http://")).await.unwrap();
        let head = format!("POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        gone.write_all(head.as_bytes()).await.unwrap();
        until(|| model.calls.load(Ordering::SeqCst) == 1).await;
        drop(gone);
        loop {
            let text = client.get("/metrics").await.body;
            if std::str::from_utf8(&text).unwrap().contains(r#"outcome="cancelled"} 1"#) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        turn.add_permits(2);
        assert_eq!(client.infer("m", body).await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn a_stop_takes_no_more_and_lets_requests_in_flight_end() {
    let turn = Arc::new(Semaphore::new(0));
    let model = fake("m", "1", Does::Waits(Arc::clone(&turn)));
    against(vec![model.clone() as _], Limits::default(), async |client| {
        let h2 = Client::of(client.base.clone(), true, client.stop.clone());
        let (first, second, ()) = tokio::join!(client.infer("m", x(1)), h2.infer("m", x(2)), async {
            until(|| model.calls.load(Ordering::SeqCst) == 2).await;
            client.stop.cancel();
            let address = client.base.trim_start_matches("http://");
            let mut refused = false;
            for _ in 0..200 {
                refused = TcpStream::connect(address).await.is_err();
                if refused {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(refused, "it still listens");
            turn.add_permits(2);
        });
        assert_eq!((first.status.as_u16(), second.status.as_u16()), (200, 200));
    })
    .await;
}

#[tokio::test]
async fn what_is_left_after_the_grace_period_is_cut_off() {
    let model = fake("m", "1", Does::Hangs);
    let limits = Limits { grace: Period::from_millis(50), ..Limits::default() };
    let left = std::sync::Mutex::new(None);
    against(vec![model.clone() as _], limits, async |client| {
        let body = x(1);
        let mut stalled = TcpStream::connect(client.base.trim_start_matches("http://")).await.unwrap();
        let head = format!("POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stalled.write_all(head.as_bytes()).await.unwrap();
        until(|| model.calls.load(Ordering::SeqCst) == 1).await;
        left.lock().unwrap().replace(stalled);
    })
    .await;
    // `against` has seen it stop; the connection is closed without an answer
    let mut stalled = left.lock().unwrap().take().unwrap();
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn a_body_that_does_not_come_is_refused() {
    let limits = Limits { body_timeout: Period::from_millis(30), ..Limits::default() };
    against(adder(), limits, async |client| {
        let mut slow = TcpStream::connect(client.base.trim_start_matches("http://")).await.unwrap();
        slow.write_all(b"POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{").await.unwrap();
        let mut got = vec![0; 4096];
        let length = slow.read(&mut got).await.unwrap();
        let text = String::from_utf8_lossy(&got[..length]).into_owned();
        assert!(text.starts_with("HTTP/1.1 408") && text.contains("the body did not come within 30 ms"), "{text}");
        let h2 = Legacy::builder(TokioExecutor::new()).http2_only(true).build_http();
        let nothing = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let stalled = client.post("/inference.GRPCInferenceService/ModelInfer").header("content-type", "application/grpc");
        let got = h2.request(stalled.body(nothing).unwrap()).await.unwrap();
        assert_eq!(got.headers()["grpc-status"], "4");
    })
    .await;
}
