//! Troubles of outcomes and of missing telemetry, each as exchanges and counters: the diagnosis names the right one first.

use std::sync::Arc;

use super::simulator::{MS, SECOND};
use crate::{Diagnosis, Diagnostician, FailureKind, GapCause, MAX_WINDOW_NS, Status, TelemetrySettings, TelemetrySources};
use lapwing_attribution::otlp::OtlpRefusals;
use lapwing_ledger::{
    Annotation, Exchange, ExchangeKind, Ledger, Outcome, SeriesKey, Server, Source, Stage, Stamp, UpstreamWindow,
};
use lapwing_metrics::{Counter, Counters, Labels};
use lapwing_settings::ConfigHandle;

const EPOCH: u64 = 1_000 * SECOND;
const ALL_ON: TelemetrySettings = TelemetrySettings { receives_spans: true, samples_traces: true, reads_bodies: true };

/// Requests of one kind: how many, how they end, their status, and how long they take.
type Batch = (u64, Outcome, u16, u64);

/// What is wrong, and what must be said first.
struct Trouble {
    name: &'static str,
    requests: &'static [Batch],
    /// What its counters have at the end.
    counters: &'static [(Counter, u64)],
    settings: TelemetrySettings,
    /// What else every request has.
    annotations: &'static [Annotation],
    server: Option<Server>,
    says: Says,
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Fails(FailureKind),
    Misses(GapCause, u64, Option<u64>),
    Nothing,
}

const SOUND: Trouble = Trouble {
    name: "",
    requests: &[(200, Outcome::Ok, 200, 20 * MS)],
    counters: &[],
    settings: ALL_ON,
    annotations: &[],
    server: None,
    says: Nothing,
};

use FailureKind::{
    ClientsLeaving, Shedding, UpstreamBreaking, UpstreamFailing, UpstreamRefusing, UpstreamTooSlow, UpstreamUnreachable,
};
use GapCause::{CompressedAnswers, ExportsRefused, NoSpans, SpansUnmatched, TracingOff};
use Says::{Fails, Misses, Nothing};

const TROUBLES: &[Trouble] = &[
    Trouble { name: "nothing", ..SOUND },
    Trouble {
        name: "the upstream is dead",
        requests: &[(40, Outcome::Unreachable, 502, MS)],
        says: Fails(UpstreamUnreachable),
        ..SOUND
    },
    Trouble {
        name: "one request, and it fails",
        requests: &[(1, Outcome::Unreachable, 502, MS)],
        says: Fails(UpstreamUnreachable),
        ..SOUND
    },
    Trouble { name: "always 500", requests: &[(200, Outcome::ServerError, 500, MS)], says: Fails(UpstreamFailing), ..SOUND },
    Trouble {
        name: "an error in each tenth 200",
        requests: &[(180, Outcome::Ok, 200, 20 * MS), (20, Outcome::BodyError, 200, MS)],
        says: Fails(UpstreamFailing),
        ..SOUND
    },
    Trouble {
        name: "429",
        requests: &[(150, Outcome::Ok, 200, 20 * MS), (50, Outcome::ClientError, 429, MS)],
        says: Fails(UpstreamRefusing),
        ..SOUND
    },
    Trouble {
        name: "shed",
        requests: &[(150, Outcome::Ok, 200, 20 * MS), (50, Outcome::Shed, 503, MS)],
        says: Fails(Shedding),
        ..SOUND
    },
    Trouble {
        name: "clients leave after a second",
        requests: &[(100, Outcome::Ok, 200, 20 * MS), (60, Outcome::Cancelled, 0, SECOND)],
        says: Fails(ClientsLeaving),
        ..SOUND
    },
    Trouble {
        name: "504",
        requests: &[(150, Outcome::Ok, 200, 20 * MS), (50, Outcome::TimedOut, 504, SECOND)],
        says: Fails(UpstreamTooSlow),
        ..SOUND
    },
    Trouble {
        name: "answers that break off",
        requests: &[(150, Outcome::Ok, 200, 20 * MS), (50, Outcome::Broken, 200, 90 * MS)],
        says: Fails(UpstreamBreaking),
        ..SOUND
    },
    Trouble {
        name: "an upstream that restarts",
        requests: &[(193, Outcome::Ok, 200, 20 * MS), (3, Outcome::Broken, 200, MS), (4, Outcome::Unreachable, 502, MS)],
        says: Fails(UpstreamUnreachable),
        ..SOUND
    },
    Trouble {
        name: "spans of another trace (a server that continues B3)",
        counters: &[(Counter::SpansReceived, 650), (Counter::SpansUnmatched, 650)],
        says: Misses(SpansUnmatched, 650, Some(650)),
        ..SOUND
    },
    Trouble {
        name: "the same, whose spans still wait for their requests",
        counters: &[(Counter::SpansReceived, 650), (Counter::OrphanSpans, 650)],
        says: Misses(SpansUnmatched, 650, Some(650)),
        ..SOUND
    },
    Trouble {
        name: "exports in a compression that is not read",
        counters: &[(Counter::OtlpContentEncoding, 21)],
        says: Misses(ExportsRefused, 21, Some(21)),
        ..SOUND
    },
    Trouble {
        name: "both receivers off",
        settings: TelemetrySettings { receives_spans: false, ..ALL_ON },
        says: Misses(TracingOff, 200, Some(200)),
        ..SOUND
    },
    Trouble {
        name: "answers in a compression that is not read",
        annotations: &[Annotation::UnreadResponse, Annotation::CompressedResponse],
        says: Misses(CompressedAnswers, 200, Some(200)),
        ..SOUND
    },
    Trouble {
        name: "a server that could send spans",
        server: Some(Server::Triton),
        says: Misses(NoSpans, 200, Some(200)),
        ..SOUND
    },
    Trouble {
        name: "statistics that cannot be polled",
        counters: &[(Counter::PollsFailed, 12)],
        says: Misses(GapCause::PollsFailing, 12, Some(12)),
        ..SOUND
    },
    Trouble {
        name: "an aggregator that does not keep up",
        counters: &[(Counter::DroppedChannelFull, 5), (Counter::SpansUnmatched, 650)],
        says: Misses(GapCause::ProfilesDropped, 5, None),
        ..SOUND
    },
    Trouble {
        name: "few client errors, and a client that stops now and then",
        requests: &[(200, Outcome::Ok, 200, 20 * MS), (30, Outcome::ClientError, 404, MS), (6, Outcome::Cancelled, 0, MS)],
        ..SOUND
    },
    Trouble {
        name: "two of 10,000",
        requests: &[(10_000, Outcome::Ok, 200, 20 * MS), (2, Outcome::ServerError, 500, MS)],
        ..SOUND
    },
    Trouble {
        name: "spans of which some are others'",
        counters: &[(Counter::SpansReceived, 1_000), (Counter::SpansJoined, 900), (Counter::SpansUnmatched, 100)],
        ..SOUND
    },
];

impl Trouble {
    fn exchange(&self, key: SeriesKey, started: Stamp, (_, outcome, status, total_ns): Batch) -> Exchange {
        let mut ledger = Ledger::open(started, 0);
        (ledger.series, ledger.outcome, ledger.status, ledger.total_ns) = (key, outcome, status, total_ns);
        (ledger.server, ledger.window) = (self.server, Some(UpstreamWindow { start_ns: 0, head_ns: total_ns, end_ns: total_ns }));
        self.annotations.iter().for_each(|annotation| ledger.circumstances.annotations.add(*annotation));
        let mut exchange = Exchange::of(ledger);
        // a server that could report and does not is silent; all others report
        let stage = if self.server.is_some() { Stage::Upstream } else { Stage::Forward };
        exchange.account.add(stage, Source::Observed, total_ns);
        exchange
    }

    /// The requests, shuffled over a minute, and the counters; then the diagnosis.
    fn diagnosed(&self) -> (Diagnostician, Diagnosis, Stamp) {
        let labels = Arc::new(Labels::new(10, 10, 10));
        let key = SeriesKey { route: labels.routes.intern("POST /predict"), ..SeriesKey::default() };
        let counters = Arc::new(Counters::default());
        let sources = TelemetrySources {
            counters: counters.clone(),
            settings: ConfigHandle::fixed(self.settings),
            certificates: ConfigHandle::fixed(Vec::new()),
            refusals: Arc::<OtlpRefusals>::default(),
        };
        let mut diagnostician = Diagnostician::new(std::collections::BTreeMap::new(), labels).watching(sources);
        let mut all: Vec<Batch> = self.requests.iter().flat_map(|one| (0..one.0).map(|_| *one)).collect();
        let mut random = crate::random::SeededRandom::new(5);
        (1..all.len()).for_each(|at| all.swap(at, random.below(at as u64 + 1) as usize));
        let step = 60 * SECOND / all.len() as u64;
        let mut now = Stamp::default().plus(EPOCH);
        diagnostician.tick_gaps(now);
        for one in all {
            now = now.plus(step);
            diagnostician.record(&self.exchange(key, now, one), now.plus(one.3));
        }
        self.counters.iter().for_each(|(counter, n)| counters.add(*counter, *n));
        let now = now.plus(2 * SECOND);
        let said = diagnostician.diagnose(MAX_WINDOW_NS, now);
        (diagnostician, said, now)
    }
}

#[test]
fn each_trouble_is_named_first() {
    for trouble in TROUBLES {
        let name = trouble.name;
        let (_, said, _) = trouble.diagnosed();
        let route = &said.routes[0];
        let failing = route.outcomes.failures.first().filter(|failure| failure.is_trouble);
        let first = match (said.missing.first(), failing) {
            (Some(gap), _) => Misses(gap.cause, gap.count, gap.of),
            (None, Some(failure)) => Fails(failure.kind),
            (None, None) => Nothing,
        };
        assert_eq!(first, trouble.says, "{name}: {said:#?}");
        assert_eq!(route.status == Status::Failing, matches!(trouble.says, Fails(_)), "{name}: {route:#?}");
        assert!(said.missing.len() <= trouble.counters.len().max(1), "{name}: {:#?}", said.missing);
        if let Some(failure) = failing {
            let [low, high] = failure.share_interval;
            assert!(low <= failure.share && failure.share <= high && !failure.fixes.is_empty(), "{name}: {failure:?}");
            assert!(
                failure.count <= failure.of && !failure.exchanges.is_empty() && failure.latest_seconds_ago.unwrap() < 60.0,
                "{failure:?}"
            );
            let capital = route.summary.split_once(": ").unwrap().1;
            assert_eq!(capital[1..40], failure.sentence[1..40], "{name}: the summary begins with it: {}", route.summary);
        }
        for gap in &said.missing {
            assert!(!gap.change.is_empty() && !gap.sentence.contains('{'), "{gap:?}");
        }
    }
}

#[test]
fn a_route_that_never_ends_well_is_never_healthy_and_has_no_latency() {
    for trouble in TROUBLES.iter().filter(|trouble| trouble.requests.iter().all(|(_, outcome, ..)| *outcome != Outcome::Ok)) {
        let route = trouble.diagnosed().1.routes.remove(0);
        assert_eq!((route.status, route.requests, route.p99_ns, route.verdicts.len()), (Status::Failing, 0, 0, 0), "{route:#?}");
        assert!(route.summary.ends_with("No request ended well."), "{}", route.summary);
    }
    // nor is one that clients only ask wrongly, though that says nothing of the server
    let only_404 = Trouble { requests: &[(300, Outcome::ClientError, 404, MS)], ..SOUND };
    let route = only_404.diagnosed().1.routes.remove(0);
    assert_eq!((route.status, route.outcomes.failures[0].is_trouble), (Status::NotEnoughEvidence, false), "{route:#?}");
}

#[test]
fn quick_errors_make_no_latency_look_good() {
    let half = Trouble { requests: &[(200, Outcome::Ok, 200, 100 * MS), (400, Outcome::ServerError, 500, MS)], ..SOUND };
    let route = half.diagnosed().1.routes.remove(0);
    assert_eq!((route.requests, route.outcomes.ended, route.outcomes.well), (200, 600, 200));
    assert!(route.p50_ns >= 99 * MS, "{}", route.p50_ns);
}

#[test]
fn streams_that_clients_end_are_no_failure_and_those_that_break_are() {
    let (mut diagnostician, _, now) = SOUND.diagnosed();
    let stream = |outcome| {
        let mut exchange = SOUND.exchange(SeriesKey::default(), now, (1, outcome, 101, SECOND));
        exchange.ledger.kind = ExchangeKind::Stream;
        exchange
    };
    for _ in 0..50 {
        diagnostician.record(&stream(Outcome::Cancelled), now);
    }
    let routes = diagnostician.diagnose(MAX_WINDOW_NS, now).routes;
    assert!(!routes.is_empty() && routes.iter().all(|route| route.status == Status::Healthy), "{routes:#?}");
    for _ in 0..5 {
        diagnostician.record(&stream(Outcome::Broken), now);
    }
    let said = diagnostician.diagnose(MAX_WINDOW_NS, now);
    assert_eq!((said.routes[0].status, said.routes[0].outcomes.failures[0].kind), (Status::Failing, UpstreamBreaking));
}

#[test]
fn what_was_wrong_is_over_with_its_window_and_the_log_says_both_once() {
    let dead = Trouble { requests: &[(40, Outcome::Unreachable, 502, MS)], ..SOUND };
    let (mut diagnostician, _, mut now) = dead.diagnosed();
    let mut lines = Vec::new();
    let mut pass = |diagnostician: &mut Diagnostician, seconds: u64, one: Batch| {
        for _ in 0..seconds * 10 {
            now = now.plus(100 * MS);
            let key = SeriesKey { route: lapwing_ledger::LabelId::default(), ..SeriesKey::default() };
            diagnostician.record(&SOUND.exchange(key, now, one), now);
            lines.extend(diagnostician.tick(now));
            lines.extend(diagnostician.tick_gaps(now));
        }
        (now, lines.clone())
    };
    let (_, said) = pass(&mut diagnostician, 100, (1, Outcome::Unreachable, 502, MS));
    let of_other =
        said.iter().filter(|line| line.starts_with("other, model other: failing: The upstream is unreachable")).count();
    assert_eq!(of_other, 1, "{said:#?}");
    let (now, said) = pass(&mut diagnostician, 200, (1, Outcome::Ok, 200, MS));
    let after: Vec<&String> =
        said.iter().filter(|line| line.starts_with("other, model other: requests end well again")).collect();
    assert_eq!(after.len(), 1, "{said:#?}");
    let routes = diagnostician.diagnose(60 * SECOND, now).routes;
    assert!(!routes.is_empty() && routes.iter().all(|route| route.status != Status::Failing), "{routes:#?}");
}

#[test]
fn what_is_missing_is_logged_once_for_each_cause() {
    let off = TROUBLES.iter().find(|trouble| trouble.says == Misses(TracingOff, 200, Some(200))).unwrap();
    let (mut diagnostician, _, now) = off.diagnosed();
    let lines: Vec<String> = (0..60).flat_map(|second| diagnostician.tick_gaps(now.plus(second * SECOND))).collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].starts_with("tracing is off, because both OTLP receivers are") && lines[0].contains("otlp_grpc"),
        "{lines:?}"
    );
}

#[test]
fn a_window_has_its_own_counts() {
    let refused = TROUBLES.iter().find(|trouble| trouble.says == Misses(ExportsRefused, 21, Some(21))).unwrap();
    let (mut diagnostician, said, now) = refused.diagnosed();
    assert_eq!(said.missing[0].count, 21);
    assert!(said.missing[0].sentence.starts_with("21 of 21 OTLP exports were refused, because they are compressed"), "{said:?}");
    (0..40).for_each(|second| drop(diagnostician.tick_gaps(now.plus(second * SECOND))));
    let later = now.plus(39 * SECOND);
    assert_eq!(diagnostician.diagnose(10 * SECOND, later).missing, []);
    assert_eq!(diagnostician.diagnose(MAX_WINDOW_NS, later).missing[0].count, 21);
}
