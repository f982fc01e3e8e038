//! Captures: any cut of a body gives the same bytes, and the memory kept alive never exceeds the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use futures_util::FutureExt;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;

use super::*;

/// A read buffer of the tests: pieces are referenced from half of it.
const READ_BUFFER: usize = 4096;
const ROOMY: CaptureLimits = CaptureLimits { total: 1 << 20, body: 1 << 20, read_buffer: READ_BUFFER };

/// An allocation that records when it is freed.
struct Counted {
    bytes: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes.len(), Relaxed);
    }
}

fn counted(bytes: Vec<u8>, alive: &Arc<AtomicUsize>) -> Bytes {
    alive.fetch_add(bytes.len(), Relaxed);
    Bytes::from_owner(Counted { bytes, alive: alive.clone() })
}

/// A read buffer, and where it is cut into pieces; or a separate allocation, which is one piece.
fn any_buffer() -> impl Strategy<Value = (Vec<u8>, Vec<prop::sample::Index>)> {
    let bytes = |size| prop::collection::vec(any::<u8>(), size);
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..6);
    prop_oneof![
        3 => (bytes(1..64), cuts.clone()),
        3 => (bytes(1..READ_BUFFER + 1), cuts),
        1 => (bytes(READ_BUFFER..3 * READ_BUFFER), Just(Vec::new())),
    ]
}

fn cut(buffer: &Bytes, cuts: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(buffer.len() + 1)).chain([0, buffer.len()]).collect();
    at.sort_unstable();
    at.windows(2).map(|ends| buffer.slice(ends[0]..ends[1])).collect()
}

fn bytes_of(captured: &CapturedBody) -> Vec<u8> {
    captured.pieces().concat()
}

fn ended(capture: BodyCapture) -> Result<CapturedBody, Incomplete> {
    capture.now_or_never().unwrap()
}

fn field(name: &'static str, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same_bytes_within_the_budget(
        buffers in prop::collection::vec(any_buffer(), 0..12),
        body in 0usize..80_000,
        total in 0usize..80_000,
        taken in 0usize..20_000,
    ) {
        let limits = CaptureLimits { total, body, read_buffer: READ_BUFFER };
        let budget = CaptureBudget::new(limits);
        let (mut other, _waiting) = capture(&budget);
        other.push(&Frame::data(Bytes::from(vec![0; taken])));
        let before = budget.used();
        let alive = Arc::new(AtomicUsize::new(0));
        let (mut writer, copy) = capture(&budget);
        let mut expected = Vec::new();
        for (bytes, cuts) in buffers {
            let buffer = counted(bytes, &alive);
            for piece in cut(&buffer, &cuts) {
                expected.extend_from_slice(&piece);
                writer.push(&Frame::data(piece));
            }
            drop(buffer);
            let reserved = budget.used() - before;
            prop_assert!(budget.used() <= total && reserved <= body);
            prop_assert!(alive.load(Relaxed) <= reserved, "{} bytes are pinned, {reserved} reserved", alive.load(Relaxed));
        }
        writer.finish();
        match ended(copy) {
            Ok(captured) => {
                prop_assert_eq!((captured.len(), captured.reserved()), (expected.len(), budget.used() - before));
                prop_assert!(captured.reserved() >= captured.len());
                prop_assert_eq!(bytes_of(&captured), expected);
            }
            Err(incomplete) => {
                prop_assert_eq!((budget.used(), alive.load(Relaxed)), (before, 0), "the memory is given back");
                let least = expected.len();
                let why = if incomplete == Incomplete::TooLarge { body } else { total.saturating_sub(before) };
                prop_assert!(why < 2 * (least + 13 * (2 * READ_BUFFER + 64)), "{} bytes do not fit {}", least, why);
            }
        }
        prop_assert_eq!((budget.used(), alive.load(Relaxed)), (before, 0));
    }

    #[test]
    fn two_copies_of_the_same_bytes_are_equal_however_they_were_cut(
        bytes in prop::collection::vec(any::<u8>(), 0..20_000),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        changed in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let budget = CaptureBudget::new(ROOMY);
        let copied = |bytes: &[u8], cuts: &[prop::sample::Index]| {
            let (mut writer, copy) = capture(&budget);
            cut(&Bytes::copy_from_slice(bytes), cuts).into_iter().for_each(|piece| writer.push(&Frame::data(piece)));
            writer.finish();
            ended(copy).unwrap()
        };
        let mut other = bytes.clone();
        let is_changed = changed.filter(|_| !other.is_empty()).map(|at| {
            let at = at.index(other.len());
            other[at] ^= 1;
        });
        prop_assert_eq!(copied(&bytes, &cuts).has_same_bytes(&copied(&other, &[])), is_changed.is_none());
        prop_assert!(!copied(&bytes, &cuts).has_same_bytes(&copied(&[&bytes[..], b"x"].concat(), &cuts)));
    }
}

#[test]
fn the_lower_half_stops_where_half_is_used() {
    let budget = CaptureBudget::new(CaptureLimits { total: 64_000, ..ROOMY });
    let half = budget.lower_half();
    let copied = |budget: &Arc<CaptureBudget>| {
        let (mut writer, copy) = capture(budget);
        writer.push(&Frame::data(Bytes::from(vec![0; 20_000])));
        writer.finish();
        ended(copy)
    };
    let first = copied(&half).unwrap();
    assert_eq!(copied(&half).unwrap_err(), Incomplete::BudgetSpent);
    let (second, third) = (copied(&budget).unwrap(), copied(&budget).unwrap());
    assert_eq!(budget.used(), first.reserved() + second.reserved() + third.reserved());
    drop(first);
    assert_eq!(copied(&half).unwrap_err(), Incomplete::BudgetSpent, "whoever uses it");
    drop((second, third));
    assert!(copied(&half).is_ok() && budget.used() == 0);
}

#[test]
fn a_small_slice_of_a_large_buffer_does_not_pin_it() {
    let (budget, alive) = (CaptureBudget::new(ROOMY), Arc::default());
    let (mut writer, copy) = capture(&budget);
    let buffer = counted(vec![7; 100_000], &alive);
    writer.push(&Frame::data(buffer.slice(50_000..50_010)));
    drop(buffer);
    assert_eq!(alive.load(Relaxed), 0);
    writer.finish();
    assert_eq!(bytes_of(&ended(copy).unwrap()), [7; 10]);
}

#[test]
fn a_large_piece_is_referenced_not_copied() {
    let budget = CaptureBudget::new(ROOMY);
    let (mut writer, copy) = capture(&budget);
    let large = Bytes::from(vec![7; READ_BUFFER]);
    for piece in [Bytes::from_static(b"a"), large.clone(), Bytes::from_static(b"b")] {
        writer.push(&Frame::data(piece));
    }
    writer.finish();
    let captured = ended(copy).unwrap();
    assert_eq!(captured.pieces().iter().map(Bytes::len).collect::<Vec<_>>(), [1, READ_BUFFER, 1]);
    assert_eq!(captured.pieces()[1].as_ptr(), large.as_ptr());
}

#[test]
fn an_aborted_body_is_incomplete() {
    let budget = CaptureBudget::new(ROOMY);
    let (mut writer, copy) = capture(&budget);
    writer.push(&Frame::data(Bytes::from_static(b"half")));
    drop(writer);
    assert_eq!(ended(copy).unwrap_err(), Incomplete::Aborted);
    assert_eq!(budget.used(), 0);
}

#[test]
fn beyond_the_shared_budget_a_capture_gives_up_and_others_go_on() {
    let budget = CaptureBudget::new(CaptureLimits { total: 10_000, ..ROOMY });
    let (mut first, kept) = capture(&budget);
    first.push(&Frame::data(Bytes::from_static(b"first")));
    let (mut second, given_up) = capture(&budget);
    second.push(&Frame::data(Bytes::from_static(b"second")));
    let both = budget.used();
    second.push(&Frame::data(Bytes::from(vec![0; 9_000])));
    assert!(!second.is_open() && budget.used() < both);
    assert_eq!(ended(given_up).unwrap_err(), Incomplete::BudgetSpent);
    first.finish();
    assert_eq!(bytes_of(&ended(kept).unwrap()), b"first");
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_capture_that_nobody_waits_for_gives_its_memory_back() {
    let budget = CaptureBudget::new(ROOMY);
    let (mut writer, copy) = capture(&budget);
    drop(copy);
    writer.push(&Frame::data(Bytes::from_static(b"x")));
    writer.finish();
    assert_eq!(budget.used(), 0);
}

#[test]
fn trailers_are_copied_within_the_budget() {
    let budget = CaptureBudget::new(ROOMY);
    let (mut writer, copy) = capture(&budget);
    writer.push(&Frame::trailers(field("grpc-status", "0")));
    writer.finish();
    let captured = ended(copy).unwrap();
    assert_eq!(captured.trailers().unwrap()["grpc-status"], "0");
    assert!(captured.reserved() > "grpc-status0".len());

    let budget = CaptureBudget::new(CaptureLimits { body: 5_000, ..ROOMY });
    let (mut writer, copy) = capture(&budget);
    writer.push(&Frame::data(Bytes::from_static(b"x")));
    writer.push(&Frame::trailers(field("x-large", &"x".repeat(1_000))));
    writer.finish();
    assert_eq!(ended(copy).unwrap_err(), Incomplete::TooLarge);
}

#[test]
fn a_replay_sends_the_copy_as_often_as_asked() {
    let budget = CaptureBudget::new(ROOMY);
    let body = Full::new(Bytes::from(vec![3; 10_000])).with_trailers(std::future::ready(Some(Ok(field("t", "1")))));
    let captured = Arc::new(capture_whole(body, &budget).now_or_never().unwrap().unwrap());
    for _ in 0..2 {
        let mut replay = captured.replay();
        assert_eq!((replay.size_hint().exact(), replay.is_end_stream()), (Some(10_000), false));
        let first = replay.frame().now_or_never().unwrap().unwrap().unwrap().into_data().unwrap();
        assert_eq!(replay.size_hint().exact(), Some(10_000 - first.len() as u64));
        let rest = replay.collect().now_or_never().unwrap().unwrap();
        assert_eq!(rest.trailers().unwrap()["t"], "1");
        assert_eq!([first, rest.to_bytes()].concat(), [3; 10_000]);
    }
    let replay = captured.replay();
    drop(captured);
    assert!(budget.used() >= 10_000, "a replay holds the copy");
    drop(replay);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_body_beyond_the_budget_is_not_read_on() {
    let budget = CaptureBudget::new(CaptureLimits { body: 1_000, ..ROOMY });
    let captured = capture_whole(Full::new(Bytes::from(vec![0; 2_000])), &budget).now_or_never().unwrap();
    assert_eq!(captured.unwrap_err(), Incomplete::TooLarge);
}
