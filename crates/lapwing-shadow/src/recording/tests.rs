//! Recordings are read back as they were written, and broken files are refused with the line that is at fault.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};

use super::*;
use crate::OutputResult;
use crate::{PairTable, SideAccount};
use lapwing_ledger::PairId;
use lapwing_ledger::Stamp;
use lapwing_metrics::Labels;

fn account(total_ns: u64) -> SideAccount {
    let figures_ns = BTreeMap::from([("total".to_owned(), total_ns), ("forward".to_owned(), total_ns / 2)]);
    SideAccount { route: "POST /score".into(), model: "m".into(), class: Some(3), is_answered: true, figures_ns }
}

fn exchange(at_ns: u64) -> RecordedExchange {
    let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let answer =
        RecordedAnswer { status: 200, headers: headers.clone(), grpc_status: Some(0), body: Bytes::from_static(b"\x00\xff") };
    RecordedExchange {
        at_ns,
        method: Method::POST,
        path: "/score?x=1".parse().unwrap(),
        http2: true,
        headers,
        body: Bytes::from_static(b"{\"a\": 1}"),
        answer: Some(answer),
        account: Some(account(1_000_000)),
    }
}

fn lines(lines: &[serde_json::Value]) -> Vec<u8> {
    lines.iter().flat_map(|line| to_line(line).unwrap()).collect()
}

fn header() -> serde_json::Value {
    serde_json::to_value(RecordingHeader::new(7, "http://m:1".into(), 0.01)).unwrap()
}

fn line(line: RecordingLine) -> serde_json::Value {
    serde_json::to_value(line).unwrap()
}

fn read(file: &[u8]) -> Result<Recording, FileError> {
    read_recording(file, FileLimits::default())
}

#[test]
fn what_was_written_is_read_in_the_order_of_arrival() {
    let end = RecordingEnd {
        requests: 2,
        dropped: [("cut".to_owned(), 3)].into(),
        accounts_lost: 0,
        duration_ns: 9,
        reason: "time".into(),
    };
    let (late, early) = (exchange(2_000), exchange(1_000));
    let plain = RecordedExchange { answer: None, account: None, ..early.clone() };
    let written = [late.clone(), plain.clone()].map(|one| line(RecordingLine::Exchange(Box::new(one))));
    let file = lines(&[header(), written[0].clone(), written[1].clone(), line(RecordingLine::End(end.clone()))]);
    let recording = read(&file).unwrap();
    assert_eq!((&recording.exchanges[..], recording.end), (&[plain, late][..], Some(end)));
    assert_eq!((recording.header.sample, recording.header.version), (0.01, 1));
    // other tools find the body by its documented name
    assert_eq!(written[0]["exchange"]["body"], "eyJhIjogMX0=");
}

#[test]
fn broken_files_are_refused_with_the_line_at_fault() {
    let good = line(RecordingLine::Exchange(Box::new(exchange(1))));
    let with = |key: &str, value: serde_json::Value| {
        let mut broken = good.clone();
        broken["exchange"][key] = value;
        lines(&[header(), broken])
    };
    let cut = lines(&[header(), good.clone()]);
    let newer = serde_json::json!({"format": "lapwing-recording", "version": 2});
    let end = line(RecordingLine::End(RecordingEnd::default()));
    for (file, reason) in [
        (b"".to_vec(), "is no lapwing-recording"),
        (b"\x00\x01\x02\n".to_vec(), "is no lapwing-recording"),
        (b"{\"format\": \"other\"}\n".to_vec(), "is no lapwing-recording"),
        (lines(&[newer]), "has version 2 of the format; this Lapwing reads version 1"),
        (lines(&[header()]), "has no requests"),
        (cut[..cut.len() - 10].to_vec(), "line 2: is cut off"),
        (lines(&[header(), good.clone(), serde_json::json!({"other": 1})]), "line 3: column"),
        (lines(&[header(), end, good.clone()]), "line 3: stands behind the end"),
        (with("body", "not base64!".into()), "no base64"),
        (with("method", "A B".into()), "line 2"),
        (with("path", "http://elsewhere/x".into()), "line 2"),
        (with("headers", serde_json::json!([["a b", "c"]])), "is no header's name"),
        (with("headers", serde_json::json!([["a", "c\r\nd: e"]])), "is no header's value"),
        (with("headers", serde_json::json!(vec![["a", "b"]; 2000])), "2000 header fields"),
        (with("at_ns", (MAX_AT_NS + 1).into()), "later than 7 days"),
        (with("at_ns", (-1).into()), "line 2"),
        (with("answer", serde_json::json!({"status": 7, "headers": [], "body": ""})), "status: 7 is none"),
    ] {
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains(reason), "{error} lacks {reason}");
    }
}

#[test]
fn no_line_and_no_file_is_read_beyond_its_limit() {
    let good = line(RecordingLine::Exchange(Box::new(exchange(1))));
    let file = lines(&[header(), good.clone(), good.clone()]);
    let error = read_recording(&file[..], FileLimits { line: 300, ..FileLimits::default() }).unwrap_err();
    assert_eq!(error.to_string(), "line 2: is longer than 300 bytes");
    let most = file.len() as u64;
    assert!(read_recording(&file[..], FileLimits { file: most, ..FileLimits::default() }).is_ok());
    let error = read_recording(&file[..], FileLimits { file: most - 1, ..FileLimits::default() }).unwrap_err();
    assert!(matches!(error, FileError::TooLarge(_)), "{error}");
    let deep = [lines(&[header()]), b"[".repeat(100_000), b"\n".to_vec()].concat();
    assert!(read(&deep).unwrap_err().to_string().starts_with("line 2: column"));
}

#[test]
fn pairs_make_the_same_report_again() {
    let labels = Labels::new(10, 10, 10);
    let started = Stamp::now();
    let table = || PairTable::new(vec![labels.upstreams.intern("a"), labels.upstreams.intern("b")], u64::MAX, started);
    let mut live = table();
    let mut file = to_line(&PairsHeader::new("first".into(), vec!["a".into(), "b".into()], Some(7))).unwrap();
    let mut event = |event: PairEvent| {
        event.apply(&mut live, &labels, started);
        file.extend(to_line(&event).unwrap());
    };
    for pair in 1..=3_000_u64 {
        let t_ns = pair * 10_000_000;
        event(PairEvent::Baseline { t_ns, pair, side: account(1_000_000 + pair * 7_919 % 100_000) });
        for target in 0..2 {
            let side = account(900_000 + pair * 104_729 % 100_000);
            event(PairEvent::Target { t_ns: t_ns + 1, pair, target, side });
            event(PairEvent::output(
                t_ns + 2,
                PairId::new(pair).unwrap(),
                target,
                if pair % 100 == 0 { OutputResult::Mismatch } else { OutputResult::Same },
            ));
        }
    }
    event(PairEvent::End { t_ns: 31_000_000_000 });
    let begin = |header: PairsHeader| {
        assert_eq!(header.targets, ["a", "b"]);
        table()
    };
    let again = read_pairs(&file[..], FileLimits::default(), begin, |pairs, event| event.apply(pairs, &labels, started)).unwrap();
    for target in 0..2 {
        let (live, again) = (live.target(target), again.target(target));
        assert_eq!((live.paired, live.cards.len()), (3_000, 1));
        assert_eq!(format!("{:?}", live.cards), format!("{:?}", again.cards));
    }
    assert_eq!(live.pooled(1), again.pooled(1));
}

#[test]
fn pairs_of_targets_that_are_not_there_are_refused() {
    let header = to_line(&PairsHeader::new("first".into(), vec!["a".into()], None)).unwrap();
    let other = to_line(&PairEvent::output(1, PairId::new(1).unwrap(), 1, OutputResult::Mismatch)).unwrap();
    let read = |file: &[u8]| read_pairs(file, FileLimits::default(), drop, |(), _| {}).unwrap_err().to_string();
    assert_eq!(read(&[header, other].concat()), "line 2: target 1; there are 1");
    assert!(read(b"{}\n").contains("is no lapwing-pairs"));
}
