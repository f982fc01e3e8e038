//! The tables: short ones with every test run, long ones for docs/BENCHMARKS.md. Seeds are fixed, so a bound holds always or never.

use std::time::Duration;

use super::noise::Noise;
use super::runs::{Looks, Pairs, Setting, look_at_every_pair, stop_at_verdict};
use super::screen::{Method, Screen};
use super::tail::{TailVerdict, stop_at_tail_verdict};
use super::{in_parallel, share, time_quantile};
use crate::ab::bins::ratio_bin;
use crate::ab::{LatencyReport, PairCounts, Tracking, Verdict};

const fn autoregressive(tau_s: f64, share: f64) -> Noise {
    Noise::Autoregressive { tau_s, share }
}

/// Every noise, with the largest share of runs that may call two equal sides different.
const NOISES: [(&str, Noise, f64); 13] = [
    ("independent, lognormal", Noise::Independent, 0.005),
    ("heavy tail: t, 2 degrees of freedom", Noise::StudentT, 0.005),
    ("heavy tail: 2 % Pareto(1.1) spikes", Noise::Spikes, 0.005),
    ("steps of 2 %: ties", Noise::Steps, 0.005),
    ("autocorrelated 50 ms, 50 % of the variance", autoregressive(0.05, 0.5), 0.005),
    ("autocorrelated 0.5 s, 10 %", autoregressive(0.5, 0.1), 0.005),
    ("autocorrelated 0.5 s, 50 %", autoregressive(0.5, 0.5), 0.005),
    ("autocorrelated 2 s, 50 %", autoregressive(2.0, 0.5), 0.005),
    ("pauses: ×3 for 0.2 s every 5 s", Noise::Pauses { length_s: 0.2, every_s: 5.0 }, 0.005),
    ("pauses: ×3 for 1 s every 5 s", Noise::Pauses { length_s: 1.0, every_s: 5.0 }, 0.005),
    ("autocorrelated 5 s, 50 %", autoregressive(5.0, 0.5), 0.05),
    ("autocorrelated 5 s, 10 %", autoregressive(5.0, 0.1), 0.05),
    ("beyond what is assumed: ×3 for 30 s every 120 s", Noise::Pauses { length_s: 30.0, every_s: 120.0 }, 1.0),
];

/// The share of runs that called equal sides different at some look; prints a row of the table.
fn false_verdicts(name: &str, setting: Setting, runs: u64) -> f64 {
    let looks = in_parallel(runs, |seed| look_at_every_pair(setting, seed, true));
    let percent = |is_so: fn(&Looks) -> bool| format!("{:.1} %", 100.0 * share(&looks, is_so));
    let seconds = |quantile| time_quantile(looks.iter().map(|look| look.first_same), quantile) / setting.pairs_per_s as f64;
    let found = share(&looks, |look| look.first_different.is_some());
    println!(
        "| {name} | {} | {} | {} | {} | **{:.2} %** | {:.0} / {:.0} s |",
        percent(|look| look.rivals.z),
        percent(|look| look.rivals.sign),
        percent(|look| look.rivals.msprt),
        percent(|look| look.pairs_only_different),
        100.0 * found,
        seconds(0.5),
        seconds(0.9),
    );
    assert_eq!(share(&looks, |look| look.has_flipped), 0.0, "{name}: faster at one look and slower at another");
    found
}

/// A true ratio, the verdicts that are right, and within how many seconds nine of ten runs have one at 100 pairs a second.
struct Effect {
    name: &'static str,
    ratio: f64,
    right: &'static [Verdict],
    within_s: f64,
}

const EFFECTS: [Effect; 5] = [
    Effect { name: "50 % slower", ratio: 1.5, right: &[Verdict::Slower], within_s: 30.0 },
    Effect { name: "10 % slower", ratio: 1.1, right: &[Verdict::Slower], within_s: 30.0 },
    Effect { name: "3 % slower", ratio: 1.03, right: &[Verdict::Slower], within_s: 30.0 },
    // both are true: it is slower, and within the margin of 2 %
    Effect { name: "1 % slower", ratio: 1.01, right: &[Verdict::Slower, Verdict::Same], within_s: 50.0 },
    Effect { name: "no difference", ratio: 1.0, right: &[Verdict::Same], within_s: 35.0 },
];

impl Effect {
    /// The number of pairs after which nine of ten runs have a verdict; prints a row. At most `wrong` of the runs may end with a
    /// wrong verdict, or with an interval without the true ratio.
    fn pairs_to_verdict(&self, noise: Noise, pairs_per_s: u64, runs: u64, wrong: f64) -> f64 {
        let setting = Setting { ratio: self.ratio, pairs_per_s, ..Setting::same(noise) };
        let stops = in_parallel(runs, |seed| stop_at_verdict(setting, seed));
        let pairs = |quantile| time_quantile(stops.iter().map(|stop| stop.pairs), quantile);
        let is_wrong = share(&stops, |stop| stop.pairs.is_some() && !self.right.contains(&stop.verdict));
        let has_missed = share(&stops, |stop| stop.has_missed);
        let (p50, p90, rate) = (pairs(0.5), pairs(0.9), pairs_per_s as f64);
        println!(
            "| {}, {pairs_per_s} pairs/s | {p50:.0} / {p90:.0} | {:.0} / {:.0} s | {:.2} % | {:.2} % |",
            self.name,
            p50 / rate,
            p90 / rate,
            100.0 * is_wrong,
            100.0 * has_missed
        );
        assert!(is_wrong <= wrong && has_missed <= wrong, "{}: {is_wrong} wrong, {has_missed} missed", self.name);
        p90
    }
}

/// Nine of ten runs find each effect in time.
fn check_power(runs: u64) {
    println!(
        "| effect, noise 5 % | pairs, p50 / p90 | time, p50 / p90 | wrong | interval without the true ratio |\n|---|---|---|---|---|"
    );
    for effect in &EFFECTS {
        let p90 = effect.pairs_to_verdict(Noise::Independent, 100, runs, 0.01);
        assert!(p90 <= 100.0 * effect.within_s, "{}: nine of ten within {p90} pairs", effect.name);
    }
    let p90 = EFFECTS[2].pairs_to_verdict(Noise::Independent, 10, runs, 0.01);
    assert!(p90 <= 450.0, "3 % at 10 pairs/s: nine of ten within {p90} pairs");
}

/// A true difference of just the margin is rarely called the same.
fn check_margin(name: &str, noise: Noise, pairs: u64, runs: u64) {
    let setting = Setting { ratio: 1.02, pairs, ..Setting::same(noise) };
    let looks = in_parallel(runs, |seed| look_at_every_pair(setting, seed, false));
    let found = share(&looks, |look| look.first_same.is_some());
    println!("a true difference of 2 %, {name}: the same at some look in {:.2} % of {runs} runs", 100.0 * found);
    assert!(found <= 0.01, "{name}: {found}");
}

/// Nine of ten runs decide on p99 in time.
fn check_tail(runs: u64) {
    for (ratio, expected, within) in [(1.36, TailVerdict::Different, 14_000.0), (1.0, TailVerdict::Same, 40_000.0)] {
        let stops = in_parallel(runs, |seed| stop_at_tail_verdict(ratio, 60_000, seed));
        let pairs = |quantile| time_quantile(stops.iter().map(|stop| stop.map(|(pairs, ..)| pairs)), quantile);
        let wrong = share(&stops, |stop| stop.is_some_and(|(_, verdict, _)| verdict != expected));
        let missed = share(&stops, |stop| stop.is_some_and(|(.., has_missed)| has_missed));
        println!(
            "p99 ratio {ratio}: {expected:?} after {:.0} / {:.0} pairs (p50 / p90), wrong {:.2} %, interval without it {:.2} %",
            pairs(0.5),
            pairs(0.9),
            100.0 * wrong,
            100.0 * missed
        );
        assert!(pairs(0.9) <= within && wrong <= 0.01 && missed <= 0.01, "p99 ratio {ratio}");
    }
}

/// Eight pods, 20 pairs a second each, whose candidate is one and noisy: their counts pooled, one tracking.
fn check_pods(pairs: u64, runs: u64) {
    let setting = Setting { pods: 8, pairs_per_s: 160, pairs, ..Setting::same(autoregressive(0.5, 0.5)) };
    let found = false_verdicts("8 pods with one noisy candidate: autocorrelated 0.5 s, 50 %", setting, runs);
    assert!(found <= 0.01, "{found}");
}

#[test]
fn effects_are_found_in_time_in_short_runs() {
    check_power(40);
    check_tail(10);
}

#[test]
#[ignore = "minutes: tests/run --long"]
fn effects_are_found_in_time() {
    check_power(2_000);
    check_tail(400);
}

#[test]
fn margin_and_pods_hold_in_short_runs() {
    check_margin("independent", Noise::Independent, 20_000, 24);
    check_pods(20_000, 24);
}

#[test]
#[ignore = "minutes: tests/run --long"]
fn margin_and_pods_hold() {
    check_margin("independent", Noise::Independent, 100_000, 1_000);
    check_margin("autocorrelated 5 s, 50 %", autoregressive(5.0, 0.5), 100_000, 1_000);
    check_pods(100_000, 1_000);
}

/// Longer blocks withstand longer disturbances, and take longer to find an effect: the one dial there is.
#[test]
#[ignore = "minutes: tests/run --long"]
fn longer_blocks_withstand_longer_disturbances() {
    for (block_s, episodes, drift) in [(1, 1.0, 0.05), (4, 0.05, 0.005), (10, 0.01, 0.005)] {
        let first_block = Duration::from_secs(block_s);
        let setting = |noise| Setting { first_block, ..Setting::same(noise) };
        let name = format!("blocks of {block_s} s");
        let found = false_verdicts(&format!("{name}, ×3 for 30 s every 120 s"), setting(NOISES[12].1), 400);
        assert!(found <= episodes, "{name}: {found}");
        let found = false_verdicts(&format!("{name}, autocorrelated 5 s, 10 %"), setting(NOISES[11].1), 400);
        assert!(found <= drift, "{name}: {found}");
    }
}

#[test]
#[ignore = "minutes: tests/run --long"]
fn equal_sides_are_rarely_called_different() {
    println!(
        "| noise | z test | sign test | mSPRT | pairs only | this method | same after, p50 / p90 |\n|---|---|---|---|---|---|---|"
    );
    let rows = NOISES.map(|(name, noise, bound)| (name, false_verdicts(name, Setting::same(noise), 2_000), bound));
    for (name, found, bound) in rows {
        assert!(found <= bound, "{name}: {found} of the runs, more than {bound}");
    }
}

#[test]
fn equal_sides_are_rarely_called_different_in_short_runs() {
    for (name, noise, bound) in NOISES {
        let setting = Setting { pairs: 10_000, ..Setting::same(noise) };
        let found = false_verdicts(name, setting, 24);
        // of 24 runs, none or for the last three at most a few
        assert!(found <= if bound > 0.01 { 0.25 } else { 0.0 }, "{name}: {found}");
    }
}

/// The screen gives the verdict of the whole report after every pair.
#[test]
fn screen_and_report_agree_at_every_look() {
    let cases = [(Noise::Independent, 1.0), (Noise::Steps, 1.02), (autoregressive(0.5, 0.5), 1.05), (Noise::Spikes, 0.97)];
    let mut verdicts = [0; 4];
    for (noise, ratio) in cases {
        for seed in 0..2 {
            let setting = Setting { ratio, ..Setting::same(noise) };
            let (mut counts, mut tracking) = (PairCounts::default(), Tracking::new());
            let (mut pairs, mut screen) = (Pairs::new(setting, seed), Screen::new(setting.first_block));
            for i in 0..4_000 {
                tracking.tick(&counts, setting.time(i));
                screen.tick(setting.time(i));
                let (baseline_ns, candidate_ns) = pairs.next();
                counts.record(baseline_ns, candidate_ns);
                screen.record(ratio_bin(baseline_ns, candidate_ns));
                // the first second has no block, so its looks are all alike
                if i >= 900 {
                    let report = LatencyReport::new(&counts, &tracking);
                    assert_eq!(screen.verdict(), report.verdict, "{noise:?}, ratio {ratio}, pair {i}");
                    let difference = Some(report.verdict).filter(|verdict| matches!(verdict, Verdict::Faster | Verdict::Slower));
                    assert_eq!(screen.difference(Method::PairsAndBlocks), difference);
                    assert_eq!((report.wins, report.losses), screen.wins_and_losses());
                    verdicts[report.verdict as usize] += 1;
                }
            }
        }
    }
    assert!(verdicts.iter().all(|seen| *seen > 100), "{verdicts:?}");
}
