//! What is read of a file, in which order, and what is made of what a running Lapwing says.

use bytes::Bytes;

use super::requests::{WarmLimits, WarmRequests, read_warm_requests};
use super::standing::{CacheStanding, UtilisationReadings, utilisation};
use crate::recording::{FileLimits, RecordedExchange, RecordingHeader, RecordingLine, to_line};
use lapwing_settings::Share;

const LIMITS: WarmLimits = WarmLimits { file: FileLimits { line: 1 << 20, file: 1 << 20 }, requests: 3 };

fn read(text: &str) -> Result<WarmRequests, String> {
    read_warm_requests(text.as_bytes(), LIMITS).map_err(|error| error.to_string())
}

fn bodies(requests: &WarmRequests) -> Vec<&str> {
    requests.list.iter().map(|one| std::str::from_utf8(&one.body).unwrap()).collect()
}

#[test]
fn different_requests_are_sent_once_and_the_most_frequent_first() {
    let line = |body: &str| format!("{{\"path\": \"/v2/models/m/infer\", \"body\": {body}}}\n");
    let text: String = ["{\"a\":  1}", "{\"b\": 1}", "\"text\"", "{\"b\": 1}", "{\"b\":1}", "{\"c\": 1}"].map(line).concat();
    let requests = read(&text).unwrap();
    // bytes are kept as they are written: a client that writes them otherwise asks another question
    assert_eq!(bodies(&requests), ["{\"b\": 1}", "{\"a\":  1}", "text"]);
    assert_eq!((requests.read, requests.beyond, requests.count(), requests.hidden), (6, 2, 3, 0));
    let [json, _, text] = &requests.list[..] else { panic!("{requests:?}") };
    assert_eq!(json.method, http::Method::POST);
    assert_eq!(json.headers.get("content-type").unwrap(), "application/json");
    assert!(text.headers.is_empty());
}

#[test]
fn fields_that_are_in_no_key_make_no_other_request() {
    let line = |fields: &str| format!("{{\"path\": \"/p\", \"headers\": {fields}}}\n");
    let same = [r#"{"User-Agent": "a", "x": "1", "content-length": "7"}"#, r#"{"X": "1", "user-agent": "b"}"#].map(line).concat();
    let requests = read(&same).unwrap();
    assert_eq!((requests.count(), requests.read), (1, 2));
    assert!(!requests.list[0].headers.contains_key("content-length"));
    assert_eq!(read(&[r#"{"x": "1"}"#, r#"{"x": "2"}"#].map(line).concat()).unwrap().count(), 2);
}

#[test]
fn a_fault_names_its_line_and_its_key() {
    for (text, says) in [
        ("", "has no requests"),
        ("{}\n", "line 1: column 2: missing field `path`"),
        ("{\"path\": \"/a\"}\n{\"path\": \"a b\"}\n", "line 2: path: \"a b\": "),
        ("{\"path\": \"a\"}\n", "line 1: path: \"a\": path does not start with slash"),
        ("{\"path\": \"/a\", \"method\": \"A B\"}\n", "line 1: method: is no method"),
        ("{\"path\": \"/a\", \"headers\": {\"a b\": \"c\"}}\n", "line 1: headers: \"a b\" is no header's name"),
        ("{\"path\": \"/a\", \"headers\": {\"a\": \"\\n\"}}\n", "line 1: headers.a: \"\\n\" is no header's value"),
        ("{\"path\": \"/a\", \"bodi\": 1}\n", "line 1: column 21: unknown field `bodi`"),
        ("{\"path\": \"/a\"}\n{\"path\": \"/b\"", "line 2: column 0: EOF while parsing an object"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(says), "{says}: {error}");
    }
}

#[test]
fn requests_of_a_recording_with_hidden_values_are_left_out() {
    let exchange = |at_ns, body: &'static str| {
        RecordingLine::Exchange(Box::new(RecordedExchange {
            at_ns,
            method: http::Method::POST,
            path: "/predict".parse().unwrap(),
            http2: true,
            headers: http::HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
            answer: None,
            account: None,
        }))
    };
    let mut file = to_line(&RecordingHeader::new(0, "http://127.0.0.1:9".to_owned(), 1.0)).unwrap();
    for (at, body) in [r#"{"token": "***"}"#, r#"{"a": 1}"#, r#"{"a": 2}"#, r#"{"a": 2}"#].into_iter().enumerate() {
        file.extend(to_line(&exchange(at as u64, body)).unwrap());
    }
    let requests = read(std::str::from_utf8(&file).unwrap()).unwrap();
    assert_eq!(bodies(&requests), [r#"{"a": 2}"#, r#"{"a": 1}"#]);
    assert_eq!((requests.read, requests.hidden, requests.list[0].http2), (4, 1, true));
}

fn cache(series: serde_json::Value) -> CacheStanding {
    let view = serde_json::json!({"mode": "on", "entries": 1, "stored": 2, "proof": 64, "ttl_ns": 1, "scope": "shared", "series": series});
    CacheStanding::read(view.to_string().as_bytes()).unwrap()
}

#[test]
fn a_series_whose_answers_were_compared_meanwhile_has_a_state() {
    let one = |model: &str, state: &str, compared: u64| serde_json::json!({"route": "POST /p", "model": model, "state": state, "compared": compared, "needed": 1});
    let before = cache(serde_json::json!([one("a", "unproven", 3), one("b", "proven", 70)]));
    for (series, state) in [
        (vec![one("a", "unproven", 3), one("b", "proven", 70)], None),
        (vec![one("a", "unproven", 4), one("b", "proven", 71)], Some("unproven")),
        (vec![one("b", "proven", 71), one("a", "unproven", 4)], Some("unproven")),
        (vec![one("a", "proven", 4)], Some("proven")),
        (vec![one("c", "refused", 1)], Some("refused")),
    ] {
        assert_eq!(cache(series.into()).state_since(&before), state);
    }
    for (view, says) in [("null", "cache.mode is off"), (r#"{"a": 1}"#, "missing field")] {
        let error = CacheStanding::read(view.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_utilisation_is_what_others_use_of_the_slots_that_are_known() {
    let view =
        |waiting: u64, upstreams: serde_json::Value| serde_json::json!({"waiting": waiting, "upstreams": upstreams}).to_string();
    let upstream = |slots: Option<u32>, running: u32| serde_json::json!({"slots": slots, "running": running});
    for (answer, own, share) in [
        ("null".to_owned(), 0, None),
        (view(0, [upstream(None, 1)].to_vec().into()), 0, None),
        (view(0, [upstream(Some(4), 1), upstream(None, 1)].to_vec().into()), 0, None),
        (view(0, [upstream(Some(4), 3)].to_vec().into()), 1, Some(0.5)),
        (view(0, [upstream(Some(4), 9), upstream(Some(4), 0)].to_vec().into()), 0, Some(0.5)),
        (view(1, [upstream(Some(4), 0)].to_vec().into()), 0, Some(1.0)),
    ] {
        assert_eq!(utilisation(answer.as_bytes(), own), share, "{answer}");
    }
    let mut readings = UtilisationReadings::default();
    let half = Share::of_percent(50);
    assert!(!readings.are_above(half), "nothing is known yet");
    for (reading, above) in [(1.0, true), (0.0, false), (1.0, true), (0.5, true), (0.0, false), (0.0, false)] {
        readings.add(reading);
        assert_eq!(readings.are_above(half), above, "{readings:?}");
    }
}
