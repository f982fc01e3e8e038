//! What is found in a store, and what that costs.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::store::{AnswerStore, CacheLookup};

const JSON: (&str, &str) = ("content-type", "application/json");

fn stored(bytes: usize, now: Stamp) -> StoredAnswer {
    answer(&request(KeyForm::Bytes, None), &[JSON, ("server", "test")], &vec![b'x'; bytes], now).unwrap()
}

#[test]
fn an_answer_is_given_while_it_is_good_for_the_request() {
    let store = AnswerStore::new(1 << 20, 1 << 10);
    store.put(key(1), stored(10, at(0))).unwrap();
    let get = |terms: RequestTerms, now: u64| match store.get(&key(1), &terms, at(now)) {
        CacheLookup::Hit(_) => "hit",
        CacheLookup::Expired => "expired",
        CacheLookup::TooOld => "too old",
        CacheLookup::Miss => "miss",
    };
    assert_eq!(get(FREE, 60 * SECOND - 1), "hit");
    assert_eq!(get(RequestTerms { may_answer: false, ..FREE }, 0), "miss");
    assert_eq!(get(RequestTerms { max_age_ns: 5 * SECOND, ..FREE }, 5 * SECOND), "hit");
    assert_eq!(get(RequestTerms { max_age_ns: 5 * SECOND, ..FREE }, 5 * SECOND + 1), "too old");
    assert_eq!(get(RequestTerms { min_fresh_ns: 50 * SECOND, ..FREE }, 10 * SECOND), "hit");
    assert_eq!(get(RequestTerms { min_fresh_ns: 50 * SECOND, ..FREE }, 10 * SECOND + 1), "too old");
    assert_eq!(get(FREE, 60 * SECOND), "expired");
    assert_eq!(get(FREE, 60 * SECOND), "miss");
    assert_eq!((store.counts().entries, store.counts().bytes, store.counts().expired), (0, 0, 1));
    assert!(matches!(store.get(&key(2), &FREE, at(0)), CacheLookup::Miss));
}

#[test]
fn as_much_is_kept_as_may_be_and_nearly_all_of_that() {
    let mut rng = StdRng::seed_from_u64(5);
    for (max_bytes, max_entry) in [(1 << 20, 64 << 10), (8 << 20, 1 << 20), (64 << 20, 64 << 10)] {
        let store = AnswerStore::new(max_bytes, max_entry);
        for number in 0..(max_bytes / 2_000) {
            let bytes = rng.random_range(0..8_000);
            assert!(store.put(key(number), stored(bytes, at(0))).is_ok());
        }
        assert!(store.put(key(1), stored(usize::try_from(max_entry).unwrap(), at(0))).is_ok(), "the largest there may be");
        let bytes = store.counts().bytes;
        assert!(bytes <= max_bytes && bytes > max_bytes * 3 / 4, "{bytes} of {max_bytes}");
        store.clear();
        assert_eq!(store.counts().entries, 0);
    }
}

/// What all allocations of an entry have in bytes, counted one by one.
#[test]
fn what_an_entry_costs_is_at_least_what_it_has() {
    for bytes in [0, 100, 5_000] {
        let name = "x-a-name-of-its-own";
        let entry = answer(&request(KeyForm::Bytes, None), &[JSON, (name, "value")], &vec![b'x'; bytes], at(0)).unwrap();
        let field = size_of::<(HeaderName, HeaderValue)>();
        let has = size_of::<StoredAnswer>() + 16 + bytes + JSON.1.len() + 5 + 2 * field + name.len() + 24 + 32;
        let cost = usize::try_from(entry.cost()).unwrap();
        assert!(cost >= has && cost < has * 13 / 10 + 200, "{cost} for {has}");
    }
}

#[test]
fn the_table_costs_no_more_than_is_counted() {
    assert!(AnswerStore::new(1 << 40, 1 << 20).table_bytes() < 1 << 20, "nothing is reserved");
    let store = AnswerStore::new(32 << 20, 64 << 10);
    let empty = store.table_bytes();
    assert!(empty < 4 << 20, "{empty} bytes before anything is stored");
    for number in 0..60_000 {
        store.put(key(number), stored(100, at(0))).unwrap();
    }
    let counts = store.counts();
    let each = stored(100, at(0)).cost();
    let counted = counts.bytes - counts.entries as u64 * each;
    assert!(store.table_bytes() as u64 <= counted, "{} of {counted} for {} entries", store.table_bytes(), counts.entries);
}

#[test]
fn what_is_too_large_is_refused_and_drops_nothing() {
    let store = AnswerStore::new(64 << 10, 8 << 10);
    store.put(key(1), stored(10, at(0))).unwrap();
    assert!(store.put(key(2), stored(60 << 10, at(0))).is_err());
    assert!(matches!(store.get(&key(1), &FREE, at(1)), CacheLookup::Hit(_)));
}

#[test]
fn pieces_of_a_connections_buffer_are_not_kept() {
    let buffer = Bytes::from(vec![b'x'; 1 << 20]);
    let (body, headers) = (vec![buffer.slice(5..15)], HeaderMap::new());
    let parts = AnswerParts { status: StatusCode::OK, headers: &headers, body: &body, trailers: None, is_complete: true };
    let entry =
        StoredAnswer::new(&request(KeyForm::Bytes, None), parts, StoringTerms { fresh_ns: 1, age_s: 0 }, 0, at(0)).unwrap();
    drop(body);
    assert!(buffer.is_unique() && entry.body().len() == 10);
}
