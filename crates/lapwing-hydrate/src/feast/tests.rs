//! Feast's encodings, held against what Feast 0.67 wrote (`tests/fixtures/feast/capture.py`), and its server's answers.

use serde::Deserialize;
use std::collections::BTreeMap;

use super::*;
use crate::config::KeyVersion;
use crate::entity::{EntityValue, EntityValues};
use crate::number::{FeatureNumber, LookupMiss};

#[derive(Deserialize)]
struct Captured {
    keys: Vec<CapturedKey>,
    hashes: BTreeMap<u32, BTreeMap<String, BTreeMap<String, String>>>,
}

#[derive(Deserialize)]
struct CapturedKey {
    version: u32,
    entity: serde_json::Map<String, serde_json::Value>,
    key: String,
}

fn of_number(version: u32) -> KeyVersion {
    if version == 2 { KeyVersion::V2 } else { KeyVersion::V3 }
}

fn captured() -> Captured {
    serde_json::from_str(include_str!("../../../../tests/fixtures/feast/redis_0.67.json")).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn entity(value: &serde_json::Value) -> EntityValue {
    value.as_i64().map_or_else(|| EntityValue::Text(value.as_str().unwrap().into()), EntityValue::Int64)
}

#[test]
fn keys_of_entities_are_feasts() {
    let keys = captured().keys;
    assert_eq!(keys.len(), 8);
    for CapturedKey { version, entity: of, key } in keys {
        let names: Vec<_> = of.keys().map(String::as_str).collect();
        let values: EntityValues = of.values().map(entity).collect();
        assert_eq!(hex(&FeastKeys::new(&names, "", of_number(version)).key(&values)), key, "{of:?}");
    }
}

#[test]
fn hashes_are_found_and_read() {
    for (version, hashes) in captured().hashes {
        let keys = FeastKeys::new(&["zone", "driver_id"], "fraud", of_number(version));
        let key = keys.key(&[EntityValue::Text("n-1".into()), EntityValue::Int64(7)]);
        let hash = &hashes[&hex(&key)];
        assert_eq!((hashes.len(), hash.len()), (1, 10));
        let of = |feature: &str| numbers(&bytes(&hash[&hex(&field(&format!("stats:{feature}")))]));
        let one = |number| Ok(vec![number]);
        assert_eq!(of("trips"), one(FeatureNumber::Integer(5)));
        assert_eq!(of("rate"), one(FeatureNumber::Single(0.1)));
        assert_eq!(of("score"), one(FeatureNumber::Double(-2.5e-300)));
        assert_eq!(of("few"), one(FeatureNumber::Integer(-3)));
        assert_eq!(of("vip"), one(FeatureNumber::Integer(1)));
        assert_eq!(of("vector"), Ok([0.5, -1.25, 3.0].map(FeatureNumber::Single).to_vec()));
        assert_eq!(of("counts"), Ok([1, -2].map(FeatureNumber::Integer).to_vec()));
        assert_eq!((of("name"), of("nothing")), (Err(LookupMiss::NotNumber), Err(LookupMiss::Absent)));
        let time = unix_seconds(&bytes(&hash[&hex(&time_field("stats"))]));
        assert_eq!(time, Some(1_796_040_000), "2026-11-30 12:00 UTC");
        assert_eq!(numbers(b"\xff\xff"), Err(LookupMiss::NotNumber));
    }
}

#[test]
fn the_feature_server_is_asked_and_read() {
    let entities: Vec<EntityValues> = [1000, 9].map(|id| [EntityValue::Int64(id)].into_iter().collect()).to_vec();
    let asked: serde_json::Value = serde_json::from_slice(&ask(&["stats:trips"], &["driver_id"], &entities)).unwrap();
    assert_eq!(asked["entities"], serde_json::json!({"driver_id": [1000, 9]}));
    assert_eq!((&asked["features"], &asked["full_feature_names"]), (&serde_json::json!(["stats:trips"]), &true.into()));
    let answer = serde_json::json!({
        "metadata": {"feature_names": ["driver_id", "stats__rate", "stats__trips"]},
        "results": [
            {"values": [1000, 9], "statuses": ["PRESENT", "PRESENT"]},
            {"values": [[0.5, 1], null], "statuses": ["PRESENT", "OUTSIDE_MAX_AGE"], "event_timestamps": []},
            {"values": [5, null], "statuses": ["PRESENT", "NOT_FOUND"]},
        ],
    });
    let read = |answer: &serde_json::Value, features: &[&str]| read(answer.to_string().as_bytes(), features, 2);
    let row = [FeatureNumber::Double(0.5), FeatureNumber::Integer(1)];
    assert_eq!(
        read(&answer, &["stats:trips", "stats:rate"]).unwrap(),
        [vec![Ok(vec![FeatureNumber::Integer(5)]), Err(LookupMiss::Absent)], vec![Ok(row.to_vec()), Err(LookupMiss::Stale)],]
    );
    assert_eq!(read(&answer, &["stats:other"]), None);
    assert_eq!(read(&serde_json::json!({"detail": "no"}), &["stats:trips"]), None);
    assert_eq!(super::read(answer.to_string().as_bytes(), &["stats:trips"], 3), None, "of other entities");
}
