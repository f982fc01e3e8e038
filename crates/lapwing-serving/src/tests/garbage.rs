//! Random bytes are refused with 400 or answered, and never cause a panic.

use std::sync::{Arc, OnceLock};

use axum::Router;
use http::Request;
use http_body_util::BodyExt;
use proptest::prelude::*;
use tower::ServiceExt;

use super::body;
use super::fake::adder;
use crate::router::router;
use crate::{Catalogue, Limits};

fn app() -> Router {
    static APP: OnceLock<Router> = OnceLock::new();
    APP.get_or_init(|| router(Arc::new(Catalogue::new(adder()).unwrap()), Limits::default())).clone()
}

fn answer(bytes: Vec<u8>, json_length: Option<usize>) -> (u16, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut request = Request::post("/v2/models/m/infer");
        if let Some(length) = json_length {
            request = request.header("inference-header-content-length", length);
        }
        let response = app().oneshot(request.body(body(bytes)).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    })
}

const GOOD: &str = r#"{"id":"1","parameters":{"timeout":50000},"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[[1,2]]},
    {"name":"ids","shape":[1],"datatype":"INT64","parameters":{"binary_data_size":8}}],"outputs":[{"name":"y"}]}"#;

proptest! {
    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in proptest::option::of(0_usize..200)) {
        let (status, body) = answer(bytes, length);
        prop_assert_eq!(status, 400, "{}", body);
        prop_assert!(body.starts_with("{\"error\":\""), "{}", body);
    }

    #[test]
    fn a_good_request_with_a_byte_changed_is_answered_or_refused(at in 0..GOOD.len(), byte in any::<u8>(), short in 0_usize..3) {
        let mut bytes = [GOOD.as_bytes(), &[7; 8]].concat();
        bytes[at] = byte;
        bytes.truncate(bytes.len() - short);
        let (status, body) = answer(bytes, Some(GOOD.len()));
        prop_assert!(status == 200 && short == 0 || status == 400 || status == 504, "{} {}", status, body);
    }
}

#[test]
fn the_good_request_is_good() {
    let (status, body) = answer([GOOD.as_bytes(), &[7; 8]].concat(), Some(GOOD.len()));
    assert_eq!(status, 200, "{body}");
    assert!(body.contains(r#""id":"1""#) && body.contains(r#""data":[2.0,3.0]"#), "{body}");
}

#[test]
fn arrays_nested_without_end_are_refused_and_cost_no_stack() {
    for open in ["[", "{\"a\":"] {
        let deep = format!(r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"FP32","data":{}"#, open.repeat(1 << 20));
        assert_eq!(answer(deep.clone().into_bytes(), None).0, 400);
        let closed = format!("{deep}1{}}}]}}", (if open == "[" { "]" } else { "}" }).repeat(1 << 20));
        assert_eq!(answer(closed.into_bytes(), None).0, 400);
    }
}
