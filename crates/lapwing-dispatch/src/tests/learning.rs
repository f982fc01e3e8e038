//! What is learnt of servers whose truth is known.

use super::{MS, Random, SERIES, answered, arrivals, at_ms};
use crate::learn::{Departure, ServiceLearner};
use crate::service::{NoWindow, ServiceModels};
use lapwing_ledger::Stamp;

fn learnt(requests: impl IntoIterator<Item = Departure>) -> ServiceModels {
    let mut learner = ServiceLearner::default();
    let mut last = at_ms(0.0);
    for one in requests {
        last = last.max(one.ended);
        learner.take(one);
    }
    learner.learn(last)
}

#[test]
fn slots_and_line_are_found_at_any_load() {
    for slots in [1, 2, 4, 8] {
        for load in [0.4, 0.7, 0.9, 1.1] {
            for noise in [0.05, 0.3] {
                #[allow(clippy::cast_precision_loss)]
                let all = arrivals(11, 3_000, load * slots as f64, noise);
                let models = learnt(answered(&all, slots, None).into_iter().map(|(one, _)| one));
                let found = models.upstreams[0].slots;
                let expected = u32::try_from(slots).unwrap();
                let hardly_waits = slots >= 4 && load < 0.5;
                assert!(
                    found == Ok(expected) || hardly_waits && found.is_err(),
                    "{slots} slots, load {load}, noise {noise}: {found:?}"
                );
                if found.is_ok() {
                    let line = &models.lines[&SERIES];
                    assert!((line.per_unit_ns / 1e6 - 1.0).abs() < 0.12, "{slots} {load} {noise}: {line:?}");
                    assert!((line.fixed_ns / 1e6 - 2.0).abs() < 0.7, "{slots} {load} {noise}: {line:?}");
                    let q99 = line.ratios[4].q99;
                    assert!((1.0..(noise * 2.33).exp() * 1.35).contains(&q99), "{noise}: {q99}");
                }
            }
        }
    }
}

/// All that are in it share the processor.
fn shared(arrivals: &[(f64, u64, f64)]) -> Vec<Departure> {
    let (mut now, mut next) = (0.0_f64, 0);
    let mut there: Vec<(usize, f64)> = Vec::new();
    let mut ends = vec![0.0; arrivals.len()];
    while next < arrivals.len() || !there.is_empty() {
        let share = 1.0 / there.len().max(1) as f64;
        let first_end = there.iter().map(|(_, left)| now + left / share).fold(f64::INFINITY, f64::min);
        let arrival = arrivals.get(next).map_or(f64::INFINITY, |one| one.0);
        let until = first_end.min(arrival);
        there.iter_mut().for_each(|(_, left)| *left -= (until - now) * share);
        now = until;
        if arrival <= first_end {
            there.push((next, arrivals[next].2));
            next += 1;
        } else {
            there.retain(|(at, left)| {
                if *left <= 1e-9 {
                    ends[*at] = now;
                }
                *left > 1e-9
            });
        }
    }
    departures(arrivals, &ends)
}

/// Takes all that wait at once: 5 ms, and 0.2 ms for each unit of the largest.
fn batched(arrivals: &[(f64, u64, f64)]) -> Vec<Departure> {
    batches_of(arrivals, usize::MAX, 5.0, 0.2)
}

/// As many as come, each in its own time.
fn unlimited(arrivals: &[(f64, u64, f64)]) -> Vec<Departure> {
    departures(arrivals, &arrivals.iter().map(|one| one.0 + one.2).collect::<Vec<_>>())
}

fn departures(arrivals: &[(f64, u64, f64)], ends: &[f64]) -> Vec<Departure> {
    answered(arrivals, 1, None).into_iter().zip(ends).map(|((one, _), end)| Departure { ended: at_ms(*end), ..one }).collect()
}

#[test]
fn a_server_that_does_not_work_one_by_one_is_not_taken_for_one() {
    for seed in 1..=5 {
        for load in [0.5, 0.8, 0.95] {
            for (name, requests) in [
                ("shared", shared(&arrivals(seed, 2_500, load, 0.1))),
                ("batched", batched(&arrivals(seed, 2_500, 3.0 * load, 0.1))),
                ("unlimited", unlimited(&arrivals(seed, 2_500, 5.0 * load, 0.1))),
            ] {
                let found = learnt(requests).upstreams[0].slots;
                assert!(matches!(found, Err(NoWindow::NotOneByOne { .. })), "{name} at {load}, seed {seed}: {found:?}");
            }
        }
    }
}

#[test]
fn what_is_not_known_says_why() {
    let few = learnt(answered(&arrivals(3, 63, 0.7, 0.1), 1, None).into_iter().map(|(one, _)| one));
    assert_eq!(few.upstreams[0].slots, Err(NoWindow::TooFewRequests { seen: 63, needed: 64 }));
    assert!(few.lines.is_empty());
    let alone = learnt(answered(&arrivals(3, 2_000, 0.01, 0.1), 1, None).into_iter().map(|(one, _)| one));
    assert!(matches!(alone.upstreams[0].slots, Err(NoWindow::NoWaitingSeen { .. })), "{:?}", alone.upstreams);
}

#[test]
fn what_was_seen_holds_until_it_is_contradicted() {
    let mut learner = ServiceLearner::default();
    let busy = answered(&arrivals(5, 2_048, 0.8, 0.1), 1, None);
    let end = busy.last().unwrap().0.ended;
    busy.iter().for_each(|(one, _)| learner.take(*one));
    assert_eq!(learner.learn(end).upstreams[0].slots, Ok(1));
    let later = |one: &Departure, by: u64| Departure {
        arrived: one.arrived.plus(by),
        sent: one.sent.plus(by),
        ended: one.ended.plus(by),
        ..*one
    };
    let by = end.as_ns();
    let quiet: Vec<_> = answered(&arrivals(6, 2_048, 0.01, 0.1), 1, None).iter().map(|(one, _)| later(one, by)).collect();
    let end = quiet.last().unwrap().ended;
    quiet.iter().for_each(|one| learner.take(*one));
    assert_eq!(learner.learn(end).upstreams[0].slots, Ok(1), "nothing says otherwise");
    let by = end.as_ns();
    let many: Vec<_> = unlimited(&arrivals(7, 2_048, 4.0, 0.1)).iter().map(|one| later(one, by)).collect();
    let end = many.last().unwrap().ended;
    many.iter().for_each(|one| learner.take(*one));
    assert!(matches!(learner.learn(end).upstreams[0].slots, Err(NoWindow::NotOneByOne { .. })));
}

#[test]
fn speeds_are_told_apart() {
    let mut learner = ServiceLearner::default();
    let mut last = at_ms(0.0);
    for (place, factor) in [(0, 1.0), (1, 1.0), (2, 2.0)] {
        let slow: Vec<_> =
            arrivals(20 + place, 2_000, 0.7 / factor, 0.1).iter().map(|one| (one.0, one.1, one.2 * factor)).collect();
        for (one, _) in answered(&slow, 1, None) {
            last = last.max(one.ended);
            learner.take(Departure { upstream: usize::try_from(place).unwrap(), ..one });
        }
    }
    let models = learner.learn(last);
    let speeds: Vec<f64> = models.upstreams.iter().map(|one| one.speed).collect();
    assert!(models.upstreams.iter().all(|one| one.slots == Ok(1)), "{models:?}");
    assert!((speeds[0] / speeds[2] - 2.0).abs() < 0.15 && (speeds[0] / speeds[1] - 1.0).abs() < 0.08, "{speeds:?}");
}

#[test]
fn one_amount_of_work_is_all_fixed() {
    let same: Vec<_> = arrivals(9, 1_000, 0.5, 0.1).iter().map(|one| (one.0, 8, 10.0)).collect();
    let models = learnt(answered(&same, 1, None).into_iter().map(|(one, _)| one));
    let line = &models.lines[&SERIES];
    assert!(line.predict(8).service_ns.abs_diff(10 * MS) < MS / 5, "{line:?}");
}

/// The same as a machine without processor to spare answers them: the server is kept from working now and then, and so is who notes the time.
/// What comes or ends meanwhile seems to do so at the end of that.
fn on_a_busy_machine(seed: u64, requests: &[(f64, u64, f64)], slots: usize, (share, mean_ms): (f64, f64)) -> Vec<Departure> {
    let mut random = Random(seed);
    let kept = |random: &mut Random| if random.uniform() < share { random.exponential(mean_ms) } else { 0.0 };
    let slowed: Vec<_> = requests.iter().map(|one| (one.0, one.1, one.2 + kept(&mut random))).collect();
    let mut all: Vec<Departure> = answered(&slowed, slots, None).into_iter().map(|(one, _)| one).collect();
    let last = all.iter().map(|one| one.ended).max().unwrap();
    let mut now = at_ms(0.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    while now < last {
        let from = now.plus((random.exponential(mean_ms / share) * 1e6) as u64);
        now = from.plus((random.exponential(mean_ms) * 1e6) as u64);
        let noted = |at: &mut Stamp| *at = if (from..now).contains(at) { now } else { *at };
        all.iter_mut().for_each(|one| {
            noted(&mut one.sent);
            noted(&mut one.ended);
        });
    }
    all
}

#[test]
fn slots_are_found_on_a_busy_machine() {
    for seed in 1..=4 {
        for busy in [(0.05, 3.0), (0.1, 4.0), (0.2, 4.0)] {
            for slots in [1, 2] {
                for load in [0.5, 0.7, 0.9] {
                    #[allow(clippy::cast_precision_loss)]
                    let requests = arrivals(seed, 2_500, load * slots as f64, 0.1);
                    let models = learnt(on_a_busy_machine(seed + 9, &requests, slots, busy));
                    let expected = u32::try_from(slots).unwrap();
                    assert_eq!(models.upstreams[0].slots, Ok(expected), "{busy:?}, load {load}, seed {seed}");
                }
            }
        }
    }
}

/// Takes at most `most` of those that wait at once, for this time and that of each unit of the largest.
fn batches_of(arrivals: &[(f64, u64, f64)], most: usize, fixed: f64, per_unit: f64) -> Vec<Departure> {
    let (mut free, mut at) = (0.0_f64, 0);
    let mut ends = vec![0.0; arrivals.len()];
    while at < arrivals.len() {
        let begin = free.max(arrivals[at].0);
        let size = arrivals[at..].iter().take(most).take_while(|one| one.0 <= begin).count();
        #[allow(clippy::cast_precision_loss)]
        let largest = arrivals[at..at + size].iter().map(|one| one.1).max().unwrap() as f64;
        free = begin + fixed + per_unit * largest;
        ends[at..at + size].fill(free);
        at += size;
    }
    departures(arrivals, &ends)
}

#[test]
fn batches_are_seen_although_few_requests_meet() {
    for seed in 1..=4 {
        for most in [2, 8, 64] {
            for ((fixed, per_unit), loads) in [((5.0, 0.2), [0.3, 0.5]), ((20.0, 0.0), [0.15, 0.3]), ((2.0, 1.0), [0.1, 0.3])] {
                for load in loads {
                    let found = learnt(batches_of(&arrivals(seed, 2_500, load, 0.1), most, fixed, per_unit)).upstreams[0].slots;
                    let why = format!("batches of {most}, {fixed} ms and {per_unit}, load {load}, seed {seed}");
                    assert!(matches!(found, Err(NoWindow::NotOneByOne { .. })), "{why}: {found:?}");
                }
            }
        }
    }
}
