//! Scenarios on the real server: what the script does to a request is what its client is told, and what it waits for.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::super::server::start_scripted_server;
use super::truth::TruthLog;
use super::*;
use crate::traffic;
use lapwing_ledger::Stage;

const MS: u64 = 1_000_000;

fn played(name: &str) -> Played {
    Played { scenario: *find(name).unwrap(), level: LoadLevel::Low, seed: 1, truth: None }
}

/// Plays a scenario without Lapwing for some seconds, at most a minute; the requests' truth.
async fn play(name: &str, is_enough: impl Fn(&TruthLog) -> bool) -> TruthLog {
    let played = played(name);
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let script = Arc::new(Script::new(&played.scenario, played.level, played.seed));
    let (server, handle) = start_scripted_server(nobody, Some(Arc::clone(&script))).unwrap();
    let (address, _relay) = played.link(server).unwrap();
    for seconds in [3, 9, 27] {
        let stop = CancellationToken::new();
        let timer = async {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            stop.cancel();
        };
        let sending = traffic::send(address, &played, Arc::clone(&script), played.rate(), stop.clone());
        let ((report, log), ()) = tokio::join!(sending, timer);
        assert_eq!((report.errors, report.first_error.as_deref()), (0, None), "{name}");
        assert!(report.requests > 0 && report.accuracy() > 0.8, "{name}: {report}");
        if is_enough(&log) {
            handle.stop();
            return log;
        }
    }
    panic!("{name} did not happen");
}

fn injected_ns(truth: &truth::Truth, stage: Stage) -> u64 {
    truth.injected.iter().find(|(known, _)| *known == stage).map_or(0, |(_, ns)| *ns)
}

#[tokio::test]
async fn a_request_takes_as_long_as_its_script_says() {
    for (name, stage, least_ms) in [("slow-store", Stage::Hydration, 600), ("heavy-postprocessing", Stage::Postprocessing, 600)] {
        let is_hit = |truth: &truth::Truth| injected_ns(truth, stage) >= least_ms * MS;
        let log = play(name, |log| log.records().iter().any(is_hit)).await;
        let script_ns = |truth: &truth::Truth| truth.injected.iter().map(|(_, ns)| ns).sum::<u64>();
        assert!(log.records().iter().all(|truth| truth.total_ns >= script_ns(truth)), "{name}");
        assert!(log.records().iter().filter(|truth| is_hit(truth)).count() * 5 < log.records().len(), "{name}: a few");
    }
}

#[tokio::test]
async fn a_far_server_delays_every_request_by_a_round_trip() {
    let log = play("far-region", |log| !log.records().is_empty()).await;
    assert!(log.records().iter().all(|truth| truth.total_ns >= 240 * MS));
}
