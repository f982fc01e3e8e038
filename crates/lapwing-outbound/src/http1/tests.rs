//! Messages as clients and servers write them, cut anywhere; and bytes that are none.

use proptest::prelude::*;

use super::Http1Reader;
use crate::call::shown::{Shown, at};
use crate::call::{Asked, CallEnd, CallReader, Wait};
use crate::unread::Unread;

fn read_in(step: usize, asked: &[u8], answered: &[u8]) -> (Shown, Result<(), Unread>, bool) {
    let (mut reader, mut shown) = (Http1Reader::default(), Shown::default());
    let mut read = asked.chunks(step).try_for_each(|piece| reader.client(piece, at(1000), 1, &mut shown));
    read = read.and_then(|()| answered.chunks(step).try_for_each(|piece| reader.server(piece, at(4000), &mut shown)));
    (shown, read, reader.is_waiting())
}

/// The same, however it is cut.
fn read(asked: &str, answered: &str) -> (Vec<(&'static str, CallEnd)>, Result<(), Unread>, bool) {
    let whole = read_in(usize::MAX, asked.as_bytes(), answered.as_bytes());
    for step in [1, 2, 3, 7, 50] {
        assert_eq!(read_in(step, asked.as_bytes(), answered.as_bytes()), whole, "in steps of {step}");
    }
    (whole.0.calls.iter().map(|call| (call.name.text(), call.end)).collect(), whole.1, whole.2)
}

const GET: &str = "GET /features/7 HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn responses_answer_requests_in_order_whatever_their_bodies() {
    let asked = format!(
        "{GET}HEAD / HTTP/1.1\r\n\r\nPOST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello\
         PUT /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n0\r\nt: 1\r\n\r\n{GET}BREW / HTTP/1.1\r\n\r\n{GET}"
    );
    let answered = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n\
        HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\ntransfer-encoding: gzip, chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n\
        HTTP/1.1 204 OK\r\n\r\nHTTP/1.1 404 None\r\ncontent-length: 0\r\n\r\nHTTP/1.0 418 I\r\ncontent-length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\nrest";
    let (calls, result, is_waiting) = read(&asked, answered);
    use CallEnd::{Answered, Failed};
    let expected =
        [("GET", Answered), ("HEAD", Answered), ("POST", Failed), ("PUT", Answered), ("GET", Answered), ("other", Failed)];
    // the last body ends with the connection
    assert_eq!((calls, result, is_waiting), (expected.to_vec(), Ok(()), true));
}

#[test]
fn a_body_until_the_end_ends_with_its_last_bytes() {
    let (mut reader, mut shown) = (Http1Reader::default(), Shown::default());
    reader.client(GET.as_bytes(), at(1000), 2, &mut shown).unwrap();
    reader.server(b"HTTP/1.0 200 OK\r\n\r\nabc", at(3000), &mut shown).unwrap();
    reader.end(at(90_000), &mut shown);
    assert_eq!((shown.calls[0].end, shown.calls[0].took_ns), (CallEnd::Answered, Some(2000)));
    assert_eq!(shown.waits, [Wait { began: at(1000), ended: at(3000), asked: Asked::Among }]);
    let (mut reader, mut shown) = (Http1Reader::default(), Shown::default());
    reader.client(GET.as_bytes(), at(1000), 0, &mut shown).unwrap();
    reader.end(at(2000), &mut shown);
    assert_eq!(shown.calls[0].end, CallEnd::Cut);
}

#[test]
fn a_trace_is_read_and_what_is_no_message_says_why() {
    let traced = GET.replace("host: a", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let (shown, ..) = read_in(usize::MAX, traced.as_bytes(), b"HTTP/1.1 204 OK\r\n\r\n");
    assert!(matches!(shown.waits[0].asked, Asked::Trace(..)));
    let switched = "HTTP/1.1 101 Switching Protocols\r\n\r\n\x00\x01";
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000));
    for (asked, answered, why) in [
        (GET, switched, Unread::Upgraded),
        ("CONNECT a:1 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", Unread::Upgraded),
        ("", "HTTP/1.1 408 Slow\r\n\r\n", Unread::Unasked),
        ("*1\r\n$4\r\nPING\r\n\r\n", "", Unread::Malformed),
        (GET, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", Unread::Malformed),
        (GET, "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", Unread::Malformed),
        (&long, "", Unread::Malformed),
    ] {
        assert_eq!(read_in(usize::MAX, asked.as_bytes(), answered.as_bytes()).1, Err(why), "{asked:.40}");
    }
}

#[test]
fn feast_says_how_many_entities_and_what_was_there() {
    let body = r#"{"features": ["stats:trips", "stats:rate"], "entities": {"driver_id": [1001, 1002, 9999]}, "full_feature_names": false}"#;
    let asked = format!("POST /get-online-features HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let answer = r#"{"metadata":{"feature_names":["driver_id","trips","rate"]},"results":[
        {"values":[1001,1002,9999],"statuses":["PRESENT","PRESENT","PRESENT"],"event_timestamps":["1970-01-01T00:00:00Z"]},
        {"values":[5,[7, null],null],"statuses":["PRESENT","PRESENT","PRESENT"]},{"values":[0.5,null,null],"statuses":["PRESENT","NULL_VALUE","NOT_FOUND"]}]}"#;
    let answered = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
    for step in [1, 3, 17, usize::MAX] {
        let (shown, ..) = read_in(step, asked.as_bytes(), answered.as_bytes());
        let call = shown.calls[0];
        assert_eq!((call.name.text(), call.keys), ("get-online-features", 3));
        assert_eq!((call.lookups.hits, call.lookups.misses), (3, 3));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_given_up_alike_however_they_are_cut(
        asked in "(GET|POST) /[a-z]{0,3} HTTP/1.1\r\n(content-length: [0-9]{1,2}\r\n|transfer-encoding: chunked\r\n)?\r\n[0-9a-f;\r\n ]{0,40}",
        answered in "(HTTP/1.1 [1-5][0-9]{2} x\r\n(content-length: [0-9]\r\n|transfer-encoding: chunked\r\n)?\r\n)?[0-9a-f;\r\n ]{0,40}",
        step in 1..30_usize,
    ) {
        let (whole, cut) = (read_in(usize::MAX, asked.as_bytes(), answered.as_bytes()), read_in(step, asked.as_bytes(), answered.as_bytes()));
        prop_assert_eq!(whole, cut);
    }
}
