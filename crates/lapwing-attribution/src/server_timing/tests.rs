//! `Server-Timing` as servers write it: entries, durations, quoting, and what is malformed.

use proptest::prelude::*;

use super::*;
use lapwing_ledger::{Stage, Stamp};

fn read(value: &str) -> (Vec<(String, Option<u64>)>, usize) {
    let mut entries = Vec::new();
    let malformed = parse(value.as_bytes(), |name, dur| entries.push((name.to_owned(), dur)));
    (entries, malformed)
}

fn good(value: &str) -> Vec<(String, Option<u64>)> {
    let (entries, malformed) = read(value);
    assert_eq!(malformed, 0, "{value}");
    entries
}

fn entry(name: &str, dur: Option<u64>) -> (String, Option<u64>) {
    (name.to_owned(), dur)
}

#[test]
fn what_servers_write_is_read() {
    let ms = 1_000_000;
    assert_eq!(
        good("miss, db;dur=53, app;dur=47.2"),
        [entry("miss", None), entry("db", Some(53 * ms)), entry("app", Some(47_200_000))]
    );
    assert_eq!(good("a;desc=\"x, y; dur=9 \\\" z\";dur=12.3"), [entry("a", Some(12_300_000))]);
    assert_eq!(
        good(" a ; dur = 1 ,\tb;DUR=\"2.5\" ,, c;desc=x;"),
        [entry("a", Some(ms)), entry("b", Some(2_500_000)), entry("c", None)]
    );
    assert_eq!(good("a;dur=1;dur=2"), [entry("a", Some(ms))]);
    assert_eq!(
        good("a;dur=1e-3,b;dur=0,c;dur=\"\\1\\2\""),
        [entry("a", Some(1000)), entry("b", Some(0)), entry("c", Some(12 * ms))]
    );
    assert_eq!(good("a;cached"), [entry("a", None)]);
    assert!(good("").is_empty() && good(" , ,").is_empty());
}

#[test]
fn what_is_no_duration_is_counted_and_the_next_entry_is_read() {
    for bad in ["-1", "nan", "NaN", "inf", "infinity", "1e300", "86400001", "x", "\"\"", "", "\"1", "1 2"] {
        let (entries, malformed) = read(&format!("z;dur=7,a;dur={bad}"));
        assert_eq!((entries, malformed), (vec![entry("z", Some(7_000_000))], 1), "{bad}");
    }
    assert_eq!(read("a b;dur=1, ;dur=2, c;dur=\"x,y\", d;dur, \"q;dur=3, e;dur=1"), (vec![entry("e", Some(1_000_000))], 5));
}

#[test]
fn only_mapped_names_with_a_duration_reach_the_ledger() {
    let mut headers = HeaderMap::new();
    headers.append(SERVER_TIMING, "total;dur=9, queue;dur=1, preprocess".parse().unwrap());
    headers.append(SERVER_TIMING, "model_forward;dur=2;desc=\"a, b\", forward;dur=x".parse().unwrap());
    let mut ledger = Ledger::open(Stamp::now(), 0);
    assert_eq!(report(&headers, &Rules::default(), ReportPlace::Trailer, &mut ledger), 1);
    let found: Vec<_> = ledger.reports.iter().map(|r| (r.stage, r.duration_ns, r.place == ReportPlace::Trailer)).collect();
    assert_eq!(found, [(Stage::Queue, 1_000_000, true), (Stage::Forward, 2_000_000, true)]);
}

#[test]
fn quotes_that_never_close_cost_no_more_than_their_length() {
    // if every quote restarted the reading, this would take hours
    let value = format!("\"{}", "\\\",".repeat(4 << 20));
    assert_eq!(parse(value.as_bytes(), |_, _| panic!("no entry is well formed")), 4 << 20);
    let (entries, malformed) = read("a\"\\\", b;dur=1");
    assert_eq!((entries, malformed), (vec![entry("b", Some(1_000_000))], 1));
}

prop_compose! {
    fn any_entry()(
        name in "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,20}",
        dur_us in proptest::option::of(0..10_000_000_u64),
        desc in proptest::option::of("[ -~]{0,20}"),
        dur_is_quoted in any::<bool>(),
        desc_is_first in any::<bool>(),
    ) -> (String, Option<u64>, String) {
        let quote = if dur_is_quoted { "\"" } else { "" };
        let dur = dur_us.map(|us| format!(";dur={quote}{}.{:03}{quote}", us / 1000, us % 1000)).unwrap_or_default();
        let desc = desc.map(|d| format!(" ; desc=\"{}\"", d.replace('\\', "\\\\").replace('"', "\\\""))).unwrap_or_default();
        let text = if desc_is_first { format!("{name}{desc}{dur}") } else { format!("{name}{dur}{desc}") };
        (name, dur_us.map(|us| us * 1000), text)
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(entries in proptest::collection::vec(any_entry(), 0..8)) {
        let text = entries.iter().map(|e| e.2.as_str()).collect::<Vec<_>>().join(", ");
        let expected: Vec<_> = entries.into_iter().map(|(name, dur, _)| (name, dur)).collect();
        prop_assert_eq!(read(&text), (expected, 0));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut entries = 0;
        let malformed = parse(&bytes, |_, _| entries += 1);
        prop_assert!(entries + malformed <= bytes.len());
    }

    #[test]
    fn no_text_near_the_grammar_makes_it_panic_or_lose_the_last_entry(text in "[ab=;,\"\\\\ .0-9dur]{0,40}") {
        prop_assume!(!text.contains('"'));
        let (entries, _) = read(&format!("{text},last;dur=1"));
        prop_assert_eq!(entries.last(), Some(&entry("last", Some(1_000_000))));
    }
}
