//! `/diagnosis` as clients see it: its form by `Accept` and query, the routes that are chosen, and its families of `/metrics`.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use serde_json::Value;
use tower::ServiceExt;

use super::fixture::{CHAT, ROUTE, busy, empty};
use crate::{Surfaces, otlp_metrics, router};
use lapwing_diagnosis::LatencyBound;
use lapwing_metrics::Counter;

async fn get(surfaces: &Surfaces, path: &str, accept: Option<&str>) -> (StatusCode, String, String) {
    let mut request = Request::get(path);
    if let Some(accept) = accept {
        request = request.header(header::ACCEPT, accept);
    }
    let response = router(surfaces.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let kind = head.headers[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    (head.status, kind, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

#[tokio::test]
async fn it_is_read_in_words_unless_json_is_asked_for() {
    let surfaces = empty();
    for (path, accept, kind) in [
        ("/diagnosis", None, TEXT),
        ("/diagnosis", Some("*/*"), TEXT),
        ("/diagnosis", Some("text/plain"), TEXT),
        ("/diagnosis", Some("application/json"), JSON),
        ("/diagnosis", Some("text/html, application/json;q=0.5"), JSON),
        ("/diagnosis?format=json", Some("*/*"), JSON),
        ("/diagnosis?format=text", Some("application/json"), TEXT),
    ] {
        let (status, answered, body) = get(&surfaces, path, accept).await;
        assert_eq!((status, &*answered), (StatusCode::OK, kind), "{path} {accept:?}");
        match kind {
            TEXT => assert_eq!(body, "2 routes in 60 s\n"),
            _ => assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["routes"][0]["route"], ROUTE),
        }
    }
}

#[tokio::test]
async fn window_and_names_choose() {
    let surfaces = empty();
    let asked = async |query: &str| {
        let (status, _, body) = get(&surfaces, &format!("/diagnosis?format=json&{query}"), None).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let diagnosis: Value = serde_json::from_str(&body).unwrap();
        let routes = diagnosis["routes"].as_array().unwrap().iter();
        let routes = routes.map(|one| one["route"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        (diagnosis["window_seconds"].as_f64().unwrap(), routes)
    };
    let (seconds, routes) = asked("window=10s").await;
    assert!((seconds - 10.0).abs() < 1e-9 && routes == [ROUTE, CHAT]);
    assert_eq!(asked("model=digits").await.1, [ROUTE]);
    assert_eq!(asked("model=").await.1, [CHAT]);
    assert_eq!(asked("route=POST+%2Fv1%2Fchat%2Fcompletions").await.1, [CHAT]);
    assert_eq!(asked("route=POST+%2Fv1%2Fchat%2Fcompletions&model=digits").await.1, [""; 0]);
    let (_, _, words) = get(&surfaces, "/diagnosis?model=digits", None).await;
    assert_eq!(words, "1 routes in 60 s\n");
    for (query, reason) in [
        ("window=all", "window=\"all\": must be one of 10s, 1m, 5m\n"),
        ("format=yaml", "format=\"yaml\": must be one of text, json\n"),
        ("format=json&format=json", "format=\"json\": given more than once\n"),
    ] {
        let (status, _, body) = get(&surfaces, &format!("/diagnosis?{query}"), None).await;
        assert_eq!((status, &*body), (StatusCode::BAD_REQUEST, reason));
    }
}

#[tokio::test]
async fn where_nothing_is_diagnosed_it_says_so() {
    let surfaces = Surfaces { diagnosis: None, ..empty() };
    let (status, _, body) = get(&surfaces, "/diagnosis", None).await;
    assert_eq!((status, &*body), (StatusCode::NOT_FOUND, "nothing is diagnosed: diagnosis.enabled is off\n"));
    let (_, _, metrics) = get(&surfaces, "/metrics", None).await;
    assert!(!metrics.contains("lapwing_bound_seconds") && !metrics.contains("lapwing_budget_excess_seconds"));
}

#[tokio::test]
async fn time_above_the_budgets_is_counted_by_bound() {
    let surfaces = busy();
    let (_, _, text) = get(&surfaces, "/metrics", Some("text/plain")).await;
    let samples: Vec<&str> =
        text.lines().filter(|line| line.starts_with("lapwing_bound_") || line.starts_with("lapwing_budget_excess")).collect();
    let labels = |route: &str, model: &str| format!("route=\"{route}\",model=\"{model}\",upstream=\"http://127.0.0.1:8000\"");
    let of = labels(ROUTE, "digits");
    let mut expected: Vec<String> = LatencyBound::ALL
        .iter()
        .map(|bound| {
            let seconds = if *bound == LatencyBound::Queue { "1.5" } else { "0.0" };
            format!("lapwing_bound_seconds_total{{{of},bound=\"{}\"}} {seconds}", bound.name())
        })
        .collect();
    let excess = |labels: &str, seconds: &str| format!("lapwing_budget_excess_seconds_total{{{labels}}} {seconds}");
    expected.extend([excess(&labels(CHAT, "tiny"), "0.0"), excess(&of, "2.0")]);
    assert_eq!(samples, expected);
    // the same by OTLP, each point since its series began
    let metrics = otlp_metrics(&surfaces);
    for (name, points) in [("lapwing_bound_seconds", LatencyBound::ALL.len()), ("lapwing_budget_excess_seconds", 2)] {
        let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
        let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
        assert_eq!((sum.data_points.len(), sum.is_monotonic, &*metric.unit), (points, true, "s"));
        assert!(sum.data_points.iter().all(|point| point.start_time_unix_nano >= surfaces.started_unix_ns));
    }
}

#[tokio::test]
async fn inferred_stages_stand_apart_from_those_that_were_reported() {
    let surfaces = busy();
    let stats: Value = serde_json::from_str(&get(&surfaces, "/stats?window=all", None).await.2).unwrap();
    let of = |route: &str| stats["series"].as_array().unwrap().iter().find(|series| series["route"] == route).unwrap();
    let chat = &of(CHAT)["inferred"];
    assert_eq!((&chat["source"], &chat["fitted"]["forward"]["mean_ns"]["value"]), (&Value::from("inferred"), &Value::from(10e6)));
    assert_eq!(of(ROUTE)["inferred"]["refused"]["reason"], "too_few_samples");
    let sources: Vec<_> = of(CHAT)["stages"].as_object().unwrap().values().map(|stage| stage["sources"].clone()).collect();
    assert!(!sources.is_empty() && sources.iter().all(|sources| sources["inferred"].is_null()), "{sources:?}");

    surfaces.counters.set(Counter::InFlight, 2);
    let text = get(&surfaces, "/metrics", None).await.2;
    let is_inferred =
        |line: &&str| ["inferred", "predicted", "capacity"].iter().any(|of| line.starts_with(&format!("lapwing_{of}_")));
    let inferred: Vec<&str> = text.lines().filter(is_inferred).collect();
    let series = format!(r#"route="{CHAT}",model="tiny",upstream="http://127.0.0.1:8000""#);
    let stages = [("forward", "sum", "4"), ("forward", "low", "3.6"), ("forward", "high", "4.4"), ("queue", "sum", "0.8")];
    let more = [("queue", "low", "0.72"), ("queue", "high", "0.88"), ("upstream", "sum", "0.2")];
    let wanted = stages.into_iter().chain(more).map(|(stage, estimate, seconds)| {
        format!(r#"lapwing_inferred_stage_seconds{{{series},stage="{stage}",estimate="{estimate}"}} {seconds}"#)
    });
    let mut wanted: Vec<String> = wanted.collect();
    wanted.push(format!("lapwing_inferred_requests{{{series}}} 400"));
    for (name, of, values) in [
        // two are in flight, and one is worked on at once
        ("predicted_wait_seconds", "", [0.024, 0.0216, 0.0264]),
        ("inferred_utilisation_ratio", "", [0.5, 0.45, 0.55]),
        ("capacity_requests_per_second", ",quantile=\"p99\"", [60.0, 54.0, 66.0]),
    ] {
        let of = |(estimate, value)| format!(r#"lapwing_{name}{{{series}{of},estimate="{estimate}"}} {value}"#);
        wanted.extend(["mean", "low", "high"].into_iter().zip(values).map(of));
    }
    assert_eq!(inferred.len(), wanted.len(), "{inferred:#?}");
    let value = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse::<f64>().unwrap())).unwrap();
    for (found, wanted) in inferred.into_iter().zip(&wanted) {
        let (found, wanted) = (value(found), value(wanted));
        assert!(found.0 == wanted.0 && (found.1 - wanted.1).abs() < 1e-9, "{found:?} {wanted:?}");
    }
}
