//! Known parameters are found after 2,000 requests, and the intervals hold them.

use super::simulator::Server;
use super::{TWO_SLOTS, statistics};
use crate::fit::{FittedValue, FittedWaiting};

const REQUESTS: usize = 2_000;

/// How well one parameter is found over many seeds.
#[derive(Debug, Default)]
struct Accuracy {
    squares: f64,
    bias: f64,
    worst: f64,
    within: u64,
    held: u64,
}

impl Accuracy {
    fn add(&mut self, found: FittedValue, truth: f64) {
        let error = found.value / truth - 1.0;
        self.squares += error * error;
        self.bias += error;
        self.worst = self.worst.max(error.abs());
        self.within += u64::from(found.is_within(0.1, truth));
        self.held += u64::from(found.holds(truth));
    }
}

/// What is found of `server` over `seeds` seeds: fixed, per unit, per ahead; how often the slots are right, and held by their interval.
fn accuracy(name: &str, server: &Server, seeds: u64) -> ([Accuracy; 3], u64, u64) {
    let mut all = <[Accuracy; 3]>::default();
    let (mut right, mut held) = (0, 0);
    for seed in 0..seeds {
        let Ok(fit) = statistics(&server.serve(seed, REQUESTS)).fit() else { continue };
        let FittedWaiting::Fitted { per_ahead_ns, slots, slots_interval } = fit.waiting else { continue };
        let truths = [server.fixed_ns, server.per_unit_ns, server.per_ahead_ns()];
        for ((accuracy, found), truth) in all.iter_mut().zip([fit.fixed_ns, fit.per_unit_ns, per_ahead_ns]).zip(truths) {
            accuracy.add(found, truth);
        }
        right += u64::from(slots as usize == server.slots);
        held += u64::from((slots_interval[0]..=slots_interval[1]).contains(&(server.slots as u32)));
    }
    for (parameter, found) in ["fixed", "per unit", "per ahead"].iter().zip(&all) {
        println!(
            "{name:34} {parameter:9}: error {:4.1} % (root mean square), {:+4.1} % (mean), {:4.1} % (most); within 10 % {}, held {} of {seeds}",
            (found.squares / seeds as f64).sqrt() * 100.0,
            found.bias / seeds as f64 * 100.0,
            found.worst * 100.0,
            found.within,
            found.held,
        );
    }
    println!("{name:34} slots: right {right}, held {held} of {seeds}");
    (all, right, held)
}

#[test]
fn parameters_are_found_and_intervals_hold_them_in_89_of_100_seeds() {
    let ([fixed, per_unit, per_ahead], right, held) = accuracy("two slots", &TWO_SLOTS, 100);
    assert_eq!((fixed.within, per_unit.within), (100, 100));
    assert!(per_ahead.within >= 97, "{per_ahead:?}");
    for found in [fixed, per_unit, per_ahead] {
        assert!(found.held >= 89, "{found:?}");
    }
    assert!(right >= 97 && held >= 97, "{right} {held}");
}

#[test]
fn other_servers_are_found_as_well() {
    let p = Server::PLAIN;
    for (name, server) in [
        ("one slot", p),
        ("four slots, 85 % busy", Server { slots: 4, utilisation: 0.85, ..p }),
        ("nearly constant service", Server { fixed_ns: 30e6, ..p }),
        ("noise of 30 %", Server { noise: 0.3, ..p }),
    ] {
        let (found, right, _) = accuracy(name, &server, 4);
        assert!(found.iter().all(|found| found.worst < 0.2 && found.held >= 3), "{name}: {found:?}");
        assert!(right >= 4, "{name}: {right}");
    }
}

#[test]
#[ignore = "takes minutes in a debug build"]
fn every_server_over_100_seeds() {
    let p = Server::PLAIN;
    for (name, server) in [
        ("one slot", p),
        ("one slot, 40 % busy", Server { utilisation: 0.4, ..p }),
        ("two slots", TWO_SLOTS),
        ("two slots, 85 % busy", Server { slots: 2, utilisation: 0.85, ..p }),
        ("four slots", Server { slots: 4, ..p }),
        ("four slots, 85 % busy", Server { slots: 4, utilisation: 0.85, ..p }),
        ("eight slots, 85 % busy", Server { slots: 8, utilisation: 0.85, ..p }),
        ("nearly constant service", Server { fixed_ns: 30e6, ..p }),
        ("hardly a fixed time", Server { fixed_ns: 1e6, ..p }),
        ("noise of 30 %", Server { noise: 0.3, ..p }),
        ("no outliers", Server { outliers: 0.0, ..p }),
        ("5 % outliers", Server { outliers: 0.05, ..p }),
        ("outliers that stay in flight", Server { linger: true, ..p }),
    ] {
        let (found, right, held) = accuracy(name, &server, 100);
        // 95 expected, give or take what 100 seeds of an interval from ten blocks differ
        assert!(found.iter().all(|found| found.held >= 86), "{name}: {found:?}");
        assert!(found[..2].iter().all(|found| found.within >= 97), "{name}: {found:?}");
        assert!(right >= 95 && held >= 95, "{name}: {right} {held}");
    }
    // beyond what the model says: shown, not asserted
    for (name, server) in [
        ("one slot, 90 % busy", Server { utilisation: 0.9, ..p }),
        ("bursts of ten", Server { burst: 10, slots: 4, utilisation: 0.5, ..p }),
        ("2 % hold their slot ten times longer", Server { stuck: 0.02, outliers: 0.0, ..p }),
    ] {
        accuracy(name, &server, 100);
    }
}
