//! The live page's shell, and the stream that feeds it.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::fixture::{busy, empty};
use crate::page::STREAMS;
use crate::router;
use lapwing_metrics::Counter;

async fn get(router: &Router, path: &str, accept: &str) -> Response {
    let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response) -> (HeaderMap, String) {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    (head.headers, String::from_utf8(body).unwrap())
}

/// The next event of a stream.
async fn event(body: &mut Body) -> Option<Value> {
    let frame = body.frame().await?.unwrap();
    let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
    let data = text.strip_prefix("data: ").and_then(|text| text.strip_suffix("\n\n")).unwrap();
    Some(serde_json::from_str(data).unwrap())
}

#[tokio::test]
async fn browsers_get_the_page_and_others_the_list() {
    let router = router(busy());
    let (head, page) = text(get(&router, "/", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8").await).await;
    assert!(page.starts_with("<!doctype html>"), "{page}");
    assert!(head[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'none'; script-src 'self';"));
    assert!(head[header::X_CONTENT_TYPE_OPTIONS] == "nosniff" && head[header::CACHE_CONTROL] == "no-store");
    let (head, script) = text(get(&router, "/page/page.js", "*/*").await).await;
    assert!(script.contains("stats/stream") && head[header::CONTENT_TYPE] == "text/javascript; charset=utf-8");
    let (_, list) = text(get(&router, "/", "*/*").await).await;
    assert!(list.starts_with("/stats"), "{list}");
}

#[tokio::test]
async fn a_stream_has_what_stats_has_until_the_shutdown() {
    let surfaces = busy();
    let router = router(surfaces.clone());
    let response = get(&router, "/stats/stream?window=all&model=absent", "text/event-stream").await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut narrow = response.into_body();
    assert_eq!(event(&mut narrow).await.unwrap()["series"], Value::Array(Vec::new()));
    let mut stream = get(&router, "/stats/stream?window=all", "*/*").await.into_body();
    let (_, stats) = text(get(&router, "/stats?window=all", "*/*").await).await;
    let stats: Value = serde_json::from_str(&stats).unwrap();
    // what is counted by the hour changes from one request to the next
    let of = |stats: &Value| {
        let all = stats["series"].as_array().unwrap();
        all.iter().map(|series| (series["route"].clone(), series["stages"].clone())).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert!(of(&event(&mut stream).await.unwrap()) == of(&stats));
    }
    surfaces.draining.cancel();
    assert!(event(&mut stream).await.is_none() && event(&mut narrow).await.is_none());
    let refused = get(&router, "/stats/stream?window=1d", "*/*").await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn only_so_many_streams_are_open() {
    let surfaces = empty();
    let router = router(surfaces.clone());
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let stream = get(&router, "/stats/stream", "*/*").await;
        assert_eq!(stream.status(), StatusCode::OK);
        open.push(stream);
    }
    assert_eq!(get(&router, "/stats/stream", "*/*").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(surfaces.counters.get(Counter::ScrapesRefused), 1);
    open.pop();
    assert_eq!(get(&router, "/stats/stream", "*/*").await.status(), StatusCode::OK);
}
