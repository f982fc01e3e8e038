//! The scenarios: one row each. Every trouble exceeds its budget clearly, and a server without one keeps it by a wide margin.
//!
//! docs/SCENARIOS.md has the same rows; a test compares them.

use super::knobs::{ExpectedDiagnosis, LinkKnobs, LoadKnobs, Padding, RandomDelay, Scenario, ServerKnobs, Sign, Stretches};
use lapwing_diagnosis::{Cause, LatencyBound};
use lapwing_ledger::Stage;

const SERVER: ServerKnobs = ServerKnobs {
    miss_ms: 2,
    expired_permille: 20,
    flush_every_ms: 0,
    slow_store: RandomDelay::NEVER,
    forward_ms: 4,
    row_us: 500,
    instances: [0, 0],
    load_after_idle_ms: None,
    pause_every_ms: None,
    postprocessing: RandomDelay::NEVER,
};
const LINK: LinkKnobs = LinkKnobs { half_trip_ms: 0, splits_writes: false };
const LOAD: LoadKnobs = LoadKnobs {
    rate: [25.0, 60.0],
    rows: &[(1, 40), (2, 30), (4, 30)],
    burst_every_ms: None,
    stretches: None,
    slow_upload: RandomDelay::NEVER,
    padding: None,
};
const HEALTHY: Scenario = Scenario {
    name: "healthy",
    what: "Nothing is wrong",
    expected: None,
    shows: None,
    budget: ("p99", 300),
    settings: &[],
    server: SERVER,
    link: LINK,
    load: LOAD,
};

/// A share of requests of which enough are in the tail, and none near the median.
const RARE_PERMILLE: u32 = 40;
/// A delay that no ordinary request has.
const LONG_DELAY_MS: (u64, u64) = (600, 800);

const fn expecting(bound: LatencyBound, cause: Cause) -> Option<ExpectedDiagnosis> {
    Some(ExpectedDiagnosis { bound: Some(bound), cause })
}

const fn shows(stage: Stage, quantile: &'static str, least_ms: u64) -> Option<Sign> {
    Some(Sign { stage, quantile, least_ms })
}

/// Every scenario, `healthy` last.
pub(crate) static SCENARIOS: [Scenario; 13] = [
    Scenario {
        name: "cold-cache",
        what: "The feature cache is emptied four times a second, so that it lacks most rows, and each of those takes 50 ms",
        expected: expecting(LatencyBound::Feature, Cause::ColdCache),
        shows: shows(Stage::Hydration, "p50", 100),
        budget: ("p50", 100),
        server: ServerKnobs { miss_ms: 50, expired_permille: 0, flush_every_ms: 250, ..SERVER },
        load: LoadKnobs { rows: &[(4, 50), (8, 50)], ..LOAD },
        ..HEALTHY
    },
    Scenario {
        name: "slow-store",
        what: "The feature store takes 600 to 800 ms for six in ten requests that miss the cache, which are as many as ever",
        expected: expecting(LatencyBound::Feature, Cause::SlowStore),
        shows: shows(Stage::Hydration, "p99", 400),
        server: ServerKnobs { slow_store: RandomDelay { permille: 600, ms: LONG_DELAY_MS }, ..SERVER },
        ..HEALTHY
    },
    Scenario {
        name: "pauses",
        what: "The whole server stops for 700 ms every 5 s, whatever the load",
        expected: expecting(LatencyBound::Pauses, Cause::Pauses),
        shows: shows(Stage::Unattributed, "p99", 300),
        server: ServerKnobs { pause_every_ms: Some((5_000, 700)), ..SERVER },
        ..HEALTHY
    },
    Scenario {
        name: "bursts",
        what: "Every 5 s 40 requests come at once, and the server does one at a time in 19 ms",
        expected: expecting(LatencyBound::Queue, Cause::Bursts),
        shows: shows(Stage::Queue, "p99", 300),
        server: ServerKnobs { forward_ms: 18, instances: [1, 1], ..SERVER },
        load: LoadKnobs { rate: [10.0, 25.0], burst_every_ms: Some((5_000, 40)), ..LOAD },
        ..HEALTHY
    },
    Scenario {
        name: "saturated",
        what: "7 % more comes than the server can do, for 45 s out of 60",
        expected: expecting(LatencyBound::Queue, Cause::Saturated),
        shows: shows(Stage::Queue, "p99", 300),
        server: ServerKnobs { forward_ms: 30, instances: [1, 2], ..SERVER },
        load: LoadKnobs {
            rate: [32.0, 64.0],
            stretches: Some(Stretches { period_ms: 60_000, busy_ms: 45_000, factors: (1.08, 0.7) }),
            ..LOAD
        },
        ..HEALTHY
    },
    Scenario {
        name: "long-inputs",
        what: "Three requests in a hundred have 48 rows, the others 1 to 4, and a row takes 14 ms",
        expected: expecting(LatencyBound::Compute, Cause::LongInputs),
        shows: shows(Stage::Forward, "p99", 400),
        server: ServerKnobs { row_us: 14_000, ..SERVER },
        load: LoadKnobs { rows: &[(1, 39), (2, 30), (4, 28), (48, 3)], ..LOAD },
        ..HEALTHY
    },
    Scenario {
        name: "slow-client",
        what: "Four clients in a hundred take 600 to 800 ms to write a request as small as the others",
        expected: expecting(LatencyBound::Network, Cause::SlowClient),
        shows: shows(Stage::Ingress, "p99", 400),
        load: LoadKnobs { slow_upload: RandomDelay { permille: RARE_PERMILLE, ms: LONG_DELAY_MS }, ..LOAD },
        ..HEALTHY
    },
    Scenario {
        name: "far-region",
        what: "The server is a round trip of 240 ms away from Lapwing",
        expected: expecting(LatencyBound::Network, Cause::FarRegion),
        shows: shows(Stage::Unattributed, "p50", 200),
        budget: ("p50", 150),
        link: LinkKnobs { half_trip_ms: 120, ..LINK },
        ..HEALTHY
    },
    Scenario {
        name: "cold-start",
        what: "Nothing comes for 2.5 s out of 10, and after 2 s without a request the model loads its weights for 800 ms",
        expected: expecting(LatencyBound::ColdStart, Cause::ColdStart),
        shows: shows(Stage::Forward, "p99", 400),
        server: ServerKnobs { load_after_idle_ms: Some((2_000, 800)), ..SERVER },
        load: LoadKnobs { stretches: Some(Stretches { period_ms: 10_000, busy_ms: 7_500, factors: (1.0, 0.0) }), ..LOAD },
        ..HEALTHY
    },
    Scenario {
        name: "oversized-bodies",
        what: "Three requests in a hundred carry 6 MB that nobody needs, over a link of 14 MB/s",
        expected: expecting(LatencyBound::Network, Cause::OversizedBodies),
        shows: shows(Stage::Ingress, "p99", 300),
        load: LoadKnobs { padding: Some(Padding { permille: 30, bytes: 6_000_000, link_bytes_per_second: 14_000_000 }), ..LOAD },
        ..HEALTHY
    },
    Scenario {
        name: "heavy-postprocessing",
        what: "The work on the outputs of four requests in a hundred takes 600 to 800 ms",
        expected: expecting(LatencyBound::Postprocessing, Cause::HeavyPostprocessing),
        shows: shows(Stage::Postprocessing, "p99", 400),
        server: ServerKnobs { postprocessing: RandomDelay { permille: RARE_PERMILLE, ms: LONG_DELAY_MS }, ..SERVER },
        ..HEALTHY
    },
    Scenario {
        name: "split-writes",
        what: "The server writes an answer's head and its body apart, with Nagle's algorithm on",
        expected: expecting(LatencyBound::Network, Cause::SplitWrites),
        shows: shows(Stage::Unattributed, "p90", 30),
        budget: ("p90", 30),
        // most answers are left as the server writes them, so that the trouble is seen, and enough are helped to measure what that saves
        settings: &[("proxy.quick_ack_unhelped", "60%")],
        link: LinkKnobs { splits_writes: true, ..LINK },
        ..HEALTHY
    },
    HEALTHY,
];

/// The scenario of this name.
pub(crate) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_same_rows() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SCENARIOS.md");
        let document = std::fs::read_to_string(path).unwrap();
        let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `--")).collect();
        let bound = |bound: Option<LatencyBound>| bound.map_or("any".to_owned(), |bound| format!("`{}`", bound.name()));
        let wanted: Vec<String> = SCENARIOS
            .iter()
            .map(|Scenario { name, what, expected, budget: (quantile, ms), .. }| {
                let expected = expected.map_or("`healthy`".to_owned(), |r| format!("{}, `{}`", bound(r.bound), r.cause.name()));
                format!("| `{name}` | {what} | {quantile} {ms} ms | {expected} |")
            })
            .collect();
        assert_eq!(rows, wanted);
    }

    #[test]
    fn every_trouble_has_a_cause_and_a_name_of_its_own_and_exceeds_its_budget() {
        for (at, scenario) in SCENARIOS.iter().enumerate() {
            let is_healthy = scenario.name == "healthy";
            assert_eq!((scenario.expected.is_none(), scenario.shows.is_none()), (is_healthy, is_healthy), "{}", scenario.name);
            assert!(scenario.load.rate[1] > 1.9 * scenario.load.rate[0], "{}", scenario.name);
            for other in &SCENARIOS[..at] {
                assert!(other.name != scenario.name && other.expected.map(|r| r.cause) != scenario.expected.map(|r| r.cause));
            }
            if let Some(sign) = scenario.shows {
                assert!(sign.least_ms >= scenario.budget.1, "{}", scenario.name);
            }
            assert_eq!(find(scenario.name), Some(scenario));
        }
        assert_eq!(find("story"), None);
    }

    #[test]
    fn saturation_exceeds_what_the_server_can_do_and_lets_it_catch_up() {
        let Scenario { server, load, .. } = find("saturated").unwrap();
        let stretches = load.stretches.unwrap();
        let (weights, rows) = load.rows.iter().fold((0, 0), |(w, r), (rows, weight)| (w + weight, r + *rows as u32 * weight));
        let service_seconds = server.forward_ms as f64 / 1e3 + server.row_us as f64 / 1e6 * f64::from(rows) / f64::from(weights);
        let busy = stretches.busy_ms as f64 / stretches.period_ms as f64;
        for (rate, instances) in load.rate.into_iter().zip(server.instances) {
            let utilisation = |factor: f64| rate * factor * service_seconds / instances as f64;
            let (up, down) = stretches.factors;
            let mean = utilisation(up) * busy + utilisation(down) * (1.0 - busy);
            assert!((1.05..1.1).contains(&utilisation(up)) && (0.9..0.99).contains(&mean), "{} {mean}", utilisation(up));
        }
    }
}
