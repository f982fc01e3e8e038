//! A replay from its recording to its report, to a server on a real socket, and its report made again from its pairs.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::TcpListener;

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::*;
use crate::config::Config;
use crate::copying::NamedTarget;
use crate::pairs::SideAccount;
use crate::recording::{FileLimits, RecordedAnswer, RecordedExchange};
use crate::settings::ShadowSettings;
use crate::surface::ShadowSurface;
use lapwing_ledger::CopyCause;

/// How many requests the recording has.
const REQUESTS: u64 = 6;

/// A server that answers each of its connections' requests with `answer`, until the process ends.
fn server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut asked, mut piece) = (Vec::new(), [0; 4096]);
                while let Ok(n @ 1..) = stream.read(&mut piece) {
                    asked.extend_from_slice(&piece[..n]);
                    // the body ends every request, and stands nowhere else
                    if asked.ends_with(BODY.as_bytes()) {
                        asked.clear();
                        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
                        write!(stream, "{head}: {}\r\n\r\n{answer}", answer.len()).unwrap();
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

const BODY: &str = r#"{"inputs":"a text"}"#;
const ANSWER: &str = r#"[{"label":"x","score":0.5}]"#;

fn recorded(at_ns: u64) -> RecordedExchange {
    let json = || HeaderMap::from_iter([(http::header::CONTENT_TYPE, "application/json".parse().unwrap())]);
    RecordedExchange {
        at_ns,
        method: Method::POST,
        path: "/predict?token=secret".parse().unwrap(),
        http2: false,
        headers: json(),
        body: Bytes::from_static(BODY.as_bytes()),
        answer: Some(RecordedAnswer {
            status: 200,
            headers: json(),
            grpc_status: None,
            body: Bytes::from_static(ANSWER.as_bytes()),
        }),
        account: Some(SideAccount {
            route: "POST /predict".to_owned(),
            is_answered: true,
            figures_ns: [("total".to_owned(), 1_000_000)].into(),
            ..SideAccount::default()
        }),
    }
}

fn settings(gate: &str) -> ReplaySettings {
    let sections = ShadowSettings {
        shadow: Config::default(),
        upstream: "http://127.0.0.1:9".parse().unwrap(),
        proxy: lapwing_proxy::Config::default(),
        protocol: lapwing_protocol::Config::default(),
        attribution: lapwing_attribution::Config::default(),
        metrics: lapwing_metrics::Config::default(),
        trace_contexts: lapwing_settings::TraceContexts::default(),
    };
    let (file, gates) = ("traffic.lwr".to_owned(), vec![gate.parse().unwrap()]);
    ReplaySettings { file, pace: Pace::Closed(2), gates, pairs: None, otlp_grpc: None, otlp_http: None, sections }
}

/// By target: its name, how many copies were answered, and how many outputs were compared and differ.
fn outcome(surface: &ShadowSurface) -> Vec<(String, u64, u64)> {
    let of = |(index, target): (usize, &crate::TargetInfo)| {
        let answered = surface.counters.target(index).unwrap().answered.load(std::sync::atomic::Ordering::Relaxed);
        let outputs = surface.outputs.lock().of(index, CopyCause::Share);
        let differing = outputs.values().map(|route| route.different).sum();
        (target.name.clone(), answered, differing)
    };
    surface.targets.iter().enumerate().map(of).collect()
}

fn target(name: &str, answer: &'static str) -> NamedTarget {
    NamedTarget::server(name.to_owned(), &server(answer).parse().unwrap(), &std::sync::Arc::default())
}

#[test]
fn one_target_is_compared_with_what_was_recorded() {
    let exchanges = || (0..REQUESTS).map(recorded).collect::<Vec<_>>();
    for (answer, differing, holds) in [(ANSWER, 0, true), (r#"[{"label":"y","score":0.5}]"#, REQUESTS, false)] {
        let targets = vec![target("candidate", answer)];
        let report = replay(settings("mismatch<=0"), targets, exchanges(), outcome).unwrap();
        assert_eq!(report.targets, [("candidate".to_owned(), REQUESTS, differing)]);
        assert_eq!((&*report.baseline, report.gates[0].holds), ("recorded", holds), "{}", gate_in_words(&report.gates[0]));
        assert_eq!(report.failed_gates().count(), usize::from(!holds));
        assert_eq!(report.sending.unwrap().requests as u64, REQUESTS);
    }
}

#[test]
fn the_first_of_several_targets_is_the_baseline_and_pairs_give_the_same_report() {
    let path = std::env::temp_dir().join(format!("lapwing-replay-{}.lwp", std::process::id()));
    let asked = ReplaySettings { pairs: Some(path.clone()), ..settings("mismatch<=0") };
    let targets = vec![target("first", ANSWER), target("second", ANSWER)];
    let report = replay(asked, targets, (0..REQUESTS).map(recorded).collect(), outcome).unwrap();
    assert_eq!((&*report.baseline, &*report.targets), ("first", &[("second".to_owned(), REQUESTS, 0)][..]));
    let paired = |surface: &ShadowSurface| surface.pairs.lock().target(0).paired;
    let again =
        report_of_pairs(settings("mismatch<=0"), BufReader::new(File::open(&path).unwrap()), FileLimits::default(), paired);
    std::fs::remove_file(&path).unwrap();
    let again = again.unwrap();
    assert_eq!((&*again.baseline, again.targets), ("first", REQUESTS));
    assert_eq!(again.gates[0].value, report.gates[0].value);
}

#[test]
fn what_cannot_be_written_is_named() {
    let asked = ReplaySettings { pairs: Some("/nowhere/pairs.lwp".into()), ..settings("mismatch<=0") };
    let error = replay(asked, vec![target("candidate", ANSWER)], vec![recorded(0)], outcome).unwrap_err().to_string();
    assert!(error.starts_with("--pairs: "), "{error}");
}
