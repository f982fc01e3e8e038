//! What is sealed comes back as it was, and what was poisoned does not come back at all.

use proptest::prelude::*;

use super::*;
use crate::sealed::{AnswerSealer, SealRefusal, SharedEpoch};

const EPOCH: SharedEpoch = SharedEpoch { all: [1; 16], model: [2; 16] };
const MAX_ENTRY: u64 = 1 << 20;
/// What an offset in the format is.
const LENGTH_AT: usize = 1;
const KEY_AT: usize = 9;
const EPOCH_AT: usize = 41;

fn sealer() -> AnswerSealer {
    AnswerSealer::new(&[7; 32])
}

fn after(ns: u64) -> SystemTime {
    wall() + Duration::from_nanos(ns)
}

fn open(sealed: Vec<u8>, kept_ns: u64) -> Result<StoredAnswer, SealRefusal> {
    sealer().open(&key(1), EPOCH, &Bytes::from(sealed), MAX_ENTRY, (at(5), after(kept_ns)))
}

fn sealed_of(answer: &StoredAnswer) -> Vec<u8> {
    sealer().seal(&key(1), EPOCH, answer, wall())
}

fn sample() -> StoredAnswer {
    let fields = [("content-type", "application/json"), ("x-two", "a"), ("x-two", "b")];
    answer(&request(KeyForm::Tensors, Some("\"1\"")), &fields, br#"{"id":"1","outputs":[1.5]}"#, at(0)).unwrap()
}

/// With the tag that the changed bytes would need.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let signed = bytes.len() - 32;
    let secret = blake3::derive_key("lapwing sealed answer 1", &[7; 32]);
    let tag = *blake3::keyed_hash(&secret, &bytes[..signed]).as_bytes();
    bytes[signed..].copy_from_slice(&tag);
    bytes
}

#[test]
fn an_answer_is_given_elsewhere_as_it_would_be_here() {
    let stored = sample();
    let opened = open(sealed_of(&stored), 3 * SECOND + 1).unwrap();
    let request = request(KeyForm::Tensors, Some("\"second\""));
    let (here, there) = (stored.again(&request, at(4 * SECOND), wall()), opened.again(&request, at(5), wall()));
    assert_eq!((here.headers, here.body.concat()), (there.headers, there.body.concat()), "its age is rounded up");
    assert!(opened.agrees_with(&stored));
    assert_eq!((opened.service_ns(), opened.terms().fresh_ns), (stored.service_ns(), 57 * SECOND - 1));
    assert!(opened.cost() > stored.cost(), "it keeps all of the block");
}

#[test]
fn trailers_come_back_and_secret_values_stay_secret() {
    let mut head = headers(&[("content-type", "application/grpc"), ("x-secret", "s")]);
    head.get_mut("x-secret").unwrap().set_sensitive(true);
    let (trailers, body) = (headers(&[("grpc-status", "0")]), [Bytes::from_static(b"\0\0\0\0\x01a")]);
    let parts = AnswerParts { status: StatusCode::OK, headers: &head, body: &body, trailers: Some(&trailers), is_complete: true };
    let bytes = request(KeyForm::Bytes, None);
    let stored = StoredAnswer::new(&bytes, parts, StoringTerms { fresh_ns: SECOND, age_s: 7 }, 1, at(0)).unwrap();
    let again = open(sealed_of(&stored), 0).unwrap().again(&bytes, at(5), wall());
    assert_eq!(again.trailers.unwrap(), trailers);
    assert_eq!((again.headers["age"].to_str().unwrap(), again.headers["x-secret"].is_sensitive()), ("7", true));
}

#[test]
fn each_poisoning_is_refused_by_its_name() {
    let sealed = sealed_of(&sample());
    let changed = |at: usize| {
        let mut bytes = sealed.clone();
        bytes[at] ^= 1;
        bytes
    };
    let moved = sealer().seal(&key(2), EPOCH, &sample(), wall());
    let foreign = AnswerSealer::new(&[8; 32]).seal(&key(1), EPOCH, &sample(), wall());
    let earlier = sealer().seal(&key(1), SharedEpoch { all: [0; 16], ..EPOCH }, &sample(), wall());
    let other_model = sealer().seal(&key(1), SharedEpoch { model: [0; 16], ..EPOCH }, &sample(), wall());
    for (what, bytes, refusal) in [
        ("nothing", Vec::new(), SealRefusal::Length),
        ("no more than a version", vec![1], SealRefusal::Length),
        ("cut off", sealed[..sealed.len() - 1].to_vec(), SealRefusal::Length),
        ("with more behind it", [&sealed[..], b"x"].concat(), SealRefusal::Length),
        ("another length", changed(LENGTH_AT), SealRefusal::Length),
        ("another version", changed(0), SealRefusal::Version),
        ("text of somebody else", b"{\"outputs\":[1]}".to_vec(), SealRefusal::Version),
        ("another key in it", changed(KEY_AT), SealRefusal::Key),
        ("copied under another key", moved.clone(), SealRefusal::Key),
        ("another epoch in it", changed(EPOCH_AT), SealRefusal::Tag),
        ("another body", changed(sealed.len() - 33), SealRefusal::Tag),
        ("another tag", changed(sealed.len() - 1), SealRefusal::Tag),
        ("sealed with another secret", foreign, SealRefusal::Tag),
        ("of an earlier epoch", earlier, SealRefusal::Epoch),
        ("of an earlier epoch of its model", other_model, SealRefusal::Epoch),
    ] {
        assert_eq!(open(bytes, 0).unwrap_err(), refusal, "{what}");
    }
    let mut copied = moved;
    copied[KEY_AT..KEY_AT + 32].copy_from_slice(key(1).as_bytes());
    assert_eq!(open(copied, 0).unwrap_err(), SealRefusal::Tag, "copied under another key, which was changed in it");
    assert_eq!(open(sealed.clone(), 60 * SECOND).unwrap_err(), SealRefusal::Expired);
    let future =
        sealer().open(&key(1), EPOCH, &Bytes::from(sealed.clone()), MAX_ENTRY, (at(5), wall() - Duration::from_secs(11)));
    assert_eq!(future.unwrap_err(), SealRefusal::Clock);
    assert!(
        sealer().open(&key(1), EPOCH, &Bytes::from(sealed.clone()), MAX_ENTRY, (at(5), wall() - Duration::from_secs(9))).is_ok()
    );
    let small = sealer().open(&key(1), EPOCH, &Bytes::from(sealed), 20, (at(5), wall()));
    assert_eq!(small.unwrap_err(), SealRefusal::TooLarge);
    let huge = Bytes::from(vec![1; (MAX_ENTRY + (256 << 10) + 1) as usize]);
    assert_eq!(sealer().open(&key(1), EPOCH, &huge, MAX_ENTRY, (at(5), wall())).unwrap_err(), SealRefusal::TooLarge);
}

#[test]
fn each_refusal_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = SealRefusal::ALL.map(SealRefusal::name).into_iter().collect();
    assert_eq!(names.len(), SealRefusal::ALL.len());
    for (at, refusal) in SealRefusal::ALL.into_iter().enumerate() {
        assert_eq!(refusal as usize, at);
    }
}

proptest! {
    #[test]
    fn every_answer_comes_back(
        fields in prop::collection::vec(("[a-z][a-z-]{0,8}", "[ -~]{0,20}"), 0..6),
        body in prop::collection::vec(any::<u8>(), 0..300),
        with_trailers in any::<bool>(),
        (fresh_ns, age_s, service_ns) in (1_u64..1 << 50, 0_u64..1 << 20, any::<u64>()),
    ) {
        let mut head = HeaderMap::new();
        for (name, value) in &fields {
            head.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let body = [Bytes::from(body)];
        let parts = AnswerParts { status: StatusCode::OK, headers: &head, body: &body, trailers: with_trailers.then_some(&head), is_complete: true };
        let bytes = request(KeyForm::Bytes, None);
        let stored = StoredAnswer::new(&bytes, parts, StoringTerms { fresh_ns, age_s }, service_ns, at(0)).unwrap();
        let opened = open(sealed_of(&stored), 0).unwrap();
        let (here, there) = (stored.again(&bytes, at(0), wall()), opened.again(&bytes, at(5), wall()));
        prop_assert_eq!((here.headers, here.trailers, here.body.concat()), (there.headers, there.trailers, there.body.concat()));
        prop_assert_eq!((stored.terms(), stored.service_ns()), (opened.terms(), opened.service_ns()));
    }

    #[test]
    fn changed_bytes_are_refused(at in any::<prop::sample::Index>(), by in 1_u8..=255, cut in any::<prop::sample::Index>()) {
        let sealed = sealed_of(&sample());
        let mut changed = sealed.clone();
        changed[at.index(sealed.len())] ^= by;
        prop_assert!(open(changed, 0).is_err());
        prop_assert!(open(sealed[..cut.index(sealed.len())].to_vec(), 0).is_err());
    }

    #[test]
    fn what_is_sealed_and_no_answer_is_refused_without_a_panic(
        at in any::<prop::sample::Index>(),
        by in 1_u8..=255,
        inserted in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let sealed = sealed_of(&sample());
        let mut changed = sealed[..sealed.len() - 32].to_vec();
        let at = at.index(changed.len());
        changed[at] = changed[at].wrapping_add(by);
        changed.splice(at..at, inserted);
        changed.extend_from_slice(&[0; 32]);
        let length = changed.len() as u64;
        changed[1..9].copy_from_slice(&length.to_le_bytes());
        if let Ok(answer) = open(resealed(changed), 0) {
            // whoever knows the secret may say anything, and nothing of it ends the process
            let _ = answer.again(&request(KeyForm::Tensors, Some("\"1\"")), at_now(), wall());
            let _ = answer.agrees_with(&sample());
        }
    }
}

fn at_now() -> Stamp {
    at(5)
}
