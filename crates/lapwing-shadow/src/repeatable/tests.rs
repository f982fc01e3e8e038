//! Routes are learnt from whole exchanges and unlearnt again; odd requests are refused; what the user names is not asked about.

use std::io::Write;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::*;

const PATH: &str = "/predict";
const ROUTE: &str = "POST /predict";
const ASKED: &str = r#"{"inputs":"a"}"#;
const ANSWERED: &str = r#"[{"label":"x","score":0.5}]"#;

fn json() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, "application/json".parse().unwrap())])
}

fn asked(repeatable: &Repeatable, body: &str) -> JudgedRequest {
    repeatable.request(&Method::POST, PATH, &json(), &[Bytes::from(body.to_owned())])
}

fn exchange(repeatable: &Repeatable, request: &str, status: u16, answer: &str) -> Result<Standing, ShadowDrop> {
    let request = asked(repeatable, request);
    let status = StatusCode::from_u16(status).unwrap();
    let body = [Bytes::from(answer.to_owned())];
    repeatable.answered(&request, &AnsweredExchange { status, headers: &json(), trailers: None, body: &body })
}

fn learnt(config: &Config) -> Repeatable {
    let repeatable = Repeatable::new(config);
    for n in 1..=LEARNT_AFTER {
        let standing = if n < LEARNT_AFTER { Standing::Learning(0) } else { Standing::Repeatable };
        assert_eq!(exchange(&repeatable, ASKED, 200, ANSWERED), Ok(standing));
    }
    repeatable
}

#[test]
fn a_route_is_learnt_by_exchanges_in_a_row() {
    let repeatable = Repeatable::new(&Config::default());
    let first = asked(&repeatable, ASKED);
    assert_eq!(repeatable.before_answer(&first), Err(ShadowDrop::Learning));
    assert_eq!(exchange(&repeatable, ASKED, 200, ANSWERED), Ok(Standing::Learning(0)));
    assert_eq!(exchange(&repeatable, ASKED, 500, "oops"), Err(ShadowDrop::Learning), "errors say nothing");
    assert_eq!(exchange(&repeatable, ASKED, 200, ANSWERED), Ok(Standing::Learning(0)));
    assert_eq!(repeatable.standing(&first, 0), Ok(Standing::Learning(0)), "it waits");
    assert_eq!(exchange(&repeatable, ASKED, 200, ANSWERED), Ok(Standing::Repeatable));
    assert_eq!(repeatable.standing(&first, 0), Ok(Standing::Repeatable));
    assert_eq!(repeatable.before_answer(&first), Ok(()));
    assert_eq!(exchange(&repeatable, ASKED, 503, "oops"), Ok(Standing::Repeatable), "an error of a learnt route is compared");
    assert_eq!(exchange(&repeatable, ASKED, 200, r#"{"error":"full"}"#), Ok(Standing::Repeatable));
    let expected = RouteStanding { route: ROUTE.to_owned(), is_repeatable: true, recognised: 3, not_recognised: 0 };
    assert_eq!(repeatable.routes(), [expected]);
}

#[test]
fn the_answers_of_a_handler_that_only_looks_alike_keep_it_from_being_learnt() {
    let repeatable = Repeatable::new(&Config::default());
    for _ in 0..10 * LEARNT_AFTER {
        assert_eq!(exchange(&repeatable, ASKED, 200, r#"{"order":7}"#), Err(ShadowDrop::NotRecognised));
        assert_eq!(exchange(&repeatable, ASKED, 200, ANSWERED), Ok(repeatable.learnt.lock().standing(ROUTE)));
        assert!(repeatable.before_answer(&asked(&repeatable, ASKED)).is_err());
    }
}

#[test]
fn an_odd_request_on_a_learnt_route_is_refused_and_makes_it_be_learnt_anew() {
    for odd in [r#"{"user":"a","password":"b"}"#, r#"{"jsonrpc":"2.0","method":"pay","inputs":"a"}"#, "inputs=a", ""] {
        let repeatable = learnt(&Config::default());
        assert_eq!(repeatable.before_answer(&asked(&repeatable, odd)), Err(ShadowDrop::NotRecognised), "before it is answered");
        assert_eq!(exchange(&repeatable, odd, 422, "no"), Err(ShadowDrop::NotRecognised));
        assert_eq!(repeatable.before_answer(&asked(&repeatable, ASKED)), Ok(()), "the server refused it too");
        let waiting = asked(&repeatable, ASKED);
        assert_eq!(exchange(&repeatable, odd, 200, ANSWERED), Err(ShadowDrop::NotRecognised), "{odd}");
        assert_eq!(repeatable.before_answer(&asked(&repeatable, ASKED)), Err(ShadowDrop::Learning));
        assert_eq!(repeatable.standing(&waiting, 0), Err(ShadowDrop::NotRecognised), "what waited is not sent");
    }
}

#[test]
fn what_the_user_names_is_copied_whatever_it_is() {
    for named in ["POST /predict", "POST /pre*", "* /predict", "POST *"] {
        let repeatable = Repeatable::new(&Config { routes: vec![named.to_owned()], ..Config::default() });
        assert_eq!(repeatable.before_answer(&asked(&repeatable, "user=a")), Ok(()), "{named}");
        assert_eq!(exchange(&repeatable, "user=a", 200, "ok"), Ok(Standing::Repeatable), "{named}");
    }
    let repeatable =
        Repeatable::new(&Config { routes: vec!["PUT /predict".to_owned(), "POST /predict/*".to_owned()], ..Config::default() });
    assert_eq!(repeatable.before_answer(&asked(&repeatable, "user=a")), Err(ShadowDrop::NotRecognised));
}

#[test]
fn what_has_an_effect_is_refused_and_teaches_nothing() {
    let repeatable = Repeatable::new(&Config::default());
    let request = |body: &str| repeatable.request(&Method::POST, "/v1/responses", &json(), &[Bytes::from(body.to_owned())]);
    let answer = [Bytes::from_static(br#"{"object":"response","output":[],"store":true}"#)];
    let answered = |request| {
        let answer = AnsweredExchange { status: StatusCode::OK, headers: &json(), trailers: None, body: &answer };
        repeatable.answered(&request, &answer)
    };
    assert_eq!(answered(request(r#"{"input":"a","background":true}"#)), Err(ShadowDrop::Effect));
    assert_eq!(answered(request(r#"{"input":"a"}"#)), Err(ShadowDrop::Effect), "the server stored the answer by itself");
    assert_eq!(repeatable.routes(), []);
}

#[test]
fn compressed_bodies_are_read_and_others_are_not_recognised() {
    let repeatable = Repeatable::new(&Config::default());
    let with = |coding: &str, body: Vec<u8>| {
        let mut headers = json();
        headers.insert(CONTENT_ENCODING, coding.parse().unwrap());
        repeatable.request(&Method::POST, PATH, &headers, &[Bytes::from(body)]).kind
    };
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(ASKED.as_bytes()).unwrap();
    assert_eq!(with("gzip", gzip.finish().unwrap()), RequestKind::Recognised);
    assert_eq!(with("gzip", ASKED.as_bytes().to_vec()), RequestKind::Refused(ShadowDrop::NotRecognised));
    assert_eq!(with("unheard-of", ASKED.as_bytes().to_vec()), RequestKind::Refused(ShadowDrop::NotRecognised));
}

#[test]
fn clients_cannot_fill_the_table() {
    let repeatable = learnt(&Config::default());
    let answer = |path: &str, body: &'static [u8]| {
        let request = repeatable.request(&Method::POST, path, &json(), &[Bytes::from_static(br#"{"model":"m","prompt":"a"}"#)]);
        let body = [Bytes::from_static(body)];
        let answer = AnsweredExchange { status: StatusCode::OK, headers: &json(), trailers: None, body: &body };
        repeatable.answered(&request, &answer)
    };
    for n in 0..1_000 {
        let _ = answer(&format!("/p{n}x/v1/completions"), b"{}");
    }
    assert_eq!(repeatable.routes().len(), 128);
    for _ in 0..LEARNT_AFTER {
        let _ = answer("/v1/completions", br#"{"choices":[{"text":"b"}]}"#);
    }
    let repeatables: Vec<_> =
        repeatable.routes().into_iter().filter(|route| route.is_repeatable).map(|route| route.route).collect();
    assert_eq!(repeatables, [ROUTE, "POST /v1/completions"], "a route that is recognised finds room");
}
