//! Reads the committed counts, compares new ones with them, or writes new ones.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::{Case, callgrind};

/// The allowed growth of a count, in percent.
const LIMIT_PERCENT: f64 = 3.0;

/// What to do with the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Compare them with the committed ones.
    Check,
    /// Write them to the file of the committed ones.
    Update,
    /// Print them.
    Print,
}

type Counts = BTreeMap<String, u64>;

fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/baseline.json"))
}

/// Counts every case; fails if one has grown too much, is not in the committed file, or cannot be counted.
pub(crate) fn run(cases: &'static [Case], mode: Mode) -> ExitCode {
    let committed: Counts = match std::fs::read_to_string(file()) {
        Ok(text) => serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file().display())),
        Err(_) => Counts::new(),
    };
    let (mut counts, mut grown) = (Counts::new(), Vec::new());
    println!("{:<16} {:>12} {:>12} {:>8}", "per exchange", "committed", "now", "change");
    for (case, now) in cases.iter().zip(callgrind::count_all(cases)) {
        let now = match now {
            Ok(now) => now,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        let old = committed.get(case.name).copied();
        let percent = old.map(|old| percent(old, now));
        let text = (old.map_or("-".to_owned(), |old| old.to_string()), percent.map_or("-".to_owned(), |p| format!("{p:+.2} %")));
        println!("{:<16} {:>12} {now:>12} {:>8}", case.name, text.0, text.1);
        if percent.is_none_or(|percent| percent > LIMIT_PERCENT) {
            grown.push((case.name, old, now, percent));
        }
        counts.insert(case.name.to_owned(), now);
    }
    match mode {
        Mode::Print => ExitCode::SUCCESS,
        Mode::Update => {
            let text = serde_json::to_string_pretty(&counts).unwrap() + "\n";
            std::fs::write(file(), text).unwrap();
            println!("wrote {}", file().display());
            ExitCode::SUCCESS
        }
        Mode::Check => check(&grown),
    }
}

fn check(grown: &[(&str, Option<u64>, u64, Option<f64>)]) -> ExitCode {
    for (name, old, now, percent) in grown {
        match (old, percent) {
            (Some(old), Some(percent)) => eprintln!(
                "{name}: {old} instructions per exchange became {now}: {percent:+.2} %, more than {LIMIT_PERCENT} % are not allowed"
            ),
            _ => eprintln!("{name}: {now} instructions per exchange, and no count in benches/baseline.json"),
        }
    }
    if grown.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("find out what needs more instructions, or commit the new counts with the reason: benches/check --update");
    ExitCode::FAILURE
}

#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn percent(old: u64, now: u64) -> f64 {
    (now as f64 / old as f64 - 1.0) * 100.0
}
