//! How stored answers are given again.

use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");

fn given(stored: &StoredAnswer, request: &KeyedRequest, now: Stamp) -> (HeaderMap, Vec<u8>) {
    let again = stored.again(request, now, wall());
    (again.headers, again.body.concat())
}

#[test]
fn the_id_is_that_of_who_asks_and_every_other_byte_stays() {
    let body = br#"{"model_name":"m", "id":"first", "outputs":[{"data":[1.0, 2]}]}"#;
    let of = |id| request(KeyForm::Tensors, id);
    let stored = answer(&of(Some("\"first\"")), &[JSON], body, at(0)).unwrap();
    for (id, expected) in [
        (Some("\"first\""), &body[..]),
        (Some(r#""sec\u00f6nd""#), br#"{"model_name":"m", "id":"sec\u00f6nd", "outputs":[{"data":[1.0, 2]}]}"#),
        (None, br#"{"model_name":"m", "outputs":[{"data":[1.0, 2]}]}"#),
    ] {
        let (head, body) = given(&stored, &of(id), at(0));
        assert_eq!(body, expected);
        assert_eq!(head["content-length"], expected.len().to_string().as_str());
    }
    let bytes = request(KeyForm::Bytes, None);
    let stored = answer(&bytes, &[JSON], body, at(0)).unwrap();
    assert_eq!(given(&stored, &bytes, at(0)).1, body, "the key has the id");
}

#[test]
fn binary_tensors_stay_behind_the_json_of_another_length() {
    let (json, tensors) = (&br#"{"id":"first","outputs":[]}"#[..], [0_u8, 255, 34, 123]);
    let length = json.len().to_string();
    let fields = [("content-type", "application/octet-stream"), ("inference-header-content-length", length.as_str())];
    let stored = answer(&request(KeyForm::Tensors, None), &fields, &[json, &tensors].concat(), at(0)).unwrap();
    for (id, json) in [(None, &br#"{"outputs":[]}"#[..]), (Some("\"a second\""), br#"{"id":"a second","outputs":[]}"#)] {
        let (head, body) = given(&stored, &request(KeyForm::Tensors, id), at(0));
        assert_eq!(body, [json, &tensors].concat());
        assert_eq!(head["inference-header-content-length"], json.len().to_string().as_str());
    }
}

#[test]
fn an_answer_whose_id_cannot_be_replaced_is_not_stored() {
    let tensors = request(KeyForm::Tensors, None);
    for (fields, body) in [
        (&[JSON][..], &b"[1]"[..]),
        (&[JSON], b"{\"id\": 7}"),
        (&[JSON, ("content-encoding", "gzip")], b"{}"),
        (&[("content-type", "application/octet-stream")], b"{}"),
        (&[JSON, ("inference-header-content-length", "9")], b"{}"),
    ] {
        assert!(answer(&tensors, fields, body, at(0)).is_none(), "{fields:?}");
        assert!(answer(&request(KeyForm::Bytes, None), fields, body, at(0)).is_some(), "{fields:?}");
    }
}

#[test]
fn the_head_is_the_answers_own_and_of_now() {
    let fields = [
        JSON,
        ("date", "Sun, 06 Nov 1994 08:00:00 GMT"),
        ("age", "3"),
        ("server-timing", "infer;dur=5"),
        ("x-request-id", "7"),
        ("x-inference-time", "5"),
        ("connection", "x-hop, close"),
        ("x-hop", "1"),
        ("transfer-encoding", "chunked"),
        ("content-length", "99"),
        ("etag", "\"a\""),
        ("x-two", "a"),
        ("x-two", "b"),
    ];
    let bytes = request(KeyForm::Bytes, None);
    let stored = answer(&bytes, &fields, b"{}", at(0)).unwrap();
    let (mut head, _) = given(&stored, &bytes, at(9 * SECOND + 999));
    assert_eq!(head.remove("age").unwrap(), "9");
    assert_eq!(head.remove("date").unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(head.remove("content-length").unwrap(), "2");
    assert_eq!(head, headers(&[JSON, ("etag", "\"a\""), ("x-two", "a"), ("x-two", "b")]));
    let tensors = request(KeyForm::Tensors, None);
    let stored = answer(&tensors, &fields, b"{}", at(0)).unwrap();
    assert!(!given(&stored, &tensors, at(0)).0.contains_key("etag"), "of other bytes");
}

#[test]
fn trailers_are_given_again_without_those_of_the_exchange() {
    let grpc = headers(&[("content-type", "application/grpc")]);
    let trailers = headers(&[("grpc-status", "0"), ("server-timing", "a;dur=1"), ("x-model", "m")]);
    let body = [Bytes::from_static(b"\0\0\0\0\0")];
    let parts = AnswerParts { status: StatusCode::OK, headers: &grpc, body: &body, trailers: Some(&trailers), is_complete: true };
    let bytes = request(KeyForm::Bytes, None);
    let stored = StoredAnswer::new(&bytes, parts, StoringTerms { fresh_ns: SECOND, age_s: 0 }, 0, at(0)).unwrap();
    let again = stored.again(&bytes, at(0), wall());
    assert_eq!(again.trailers.unwrap(), headers(&[("grpc-status", "0"), ("x-model", "m")]));
    assert!(!again.headers.contains_key("content-length"));
}

#[test]
fn answers_agree_whatever_their_ids() {
    let of = |body: &str| answer(&request(KeyForm::Tensors, None), &[JSON], body.as_bytes(), at(0)).unwrap();
    assert!(of(r#"{"id":"a","outputs":[1]}"#).agrees_with(&of(r#"{"id":"bcd","outputs":[1]}"#)));
    assert!(of(r#"{"id":"a","outputs":[1]}"#).agrees_with(&of(r#"{"outputs":[1]}"#)));
    assert!(!of(r#"{"id":"a","outputs":[1]}"#).agrees_with(&of(r#"{"id":"a","outputs":[2]}"#)));
    assert!(!of(r#"{"id":"a","outputs":[1]}"#).agrees_with(&of(r#"{"id":"a","outputs":[1]} "#)));
}
