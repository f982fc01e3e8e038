//! Feast's feature server: `POST /get-online-features`.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::entity::{EntityValue, EntityValues};
use crate::number::{FeatureNumber, Found, LookupMiss};

/// The body that asks for `features` (`view:feature`) of `entities`, whose parts have these `names`.
pub(crate) fn ask(features: &[&str], names: &[&str], entities: &[EntityValues]) -> Vec<u8> {
    let column = |(at, name): (usize, &&str)| {
        let values: Vec<Value> = entities.iter().filter_map(|values| values.get(at)).map(EntityValue::json).collect();
        ((*name).to_owned(), Value::from(values))
    };
    let columns: Map<String, Value> = names.iter().enumerate().map(column).collect();
    json!({"features": features, "entities": columns, "full_feature_names": true}).to_string().into_bytes()
}

#[derive(Deserialize)]
struct Answer<'a> {
    metadata: Metadata,
    #[serde(borrow)]
    results: Vec<Column<'a>>,
}

#[derive(Deserialize)]
struct Metadata {
    feature_names: Vec<String>,
}

/// A feature of all entities.
#[derive(Deserialize)]
struct Column<'a> {
    #[serde(borrow)]
    values: Vec<&'a RawValue>,
    statuses: Vec<String>,
}

/// Reads what the server answers: for each of `features` its numbers of each of so many `entities`. `None` if it is no such answer.
pub(crate) fn read(answer: &[u8], features: &[&str], entities: usize) -> Option<Vec<Vec<Found>>> {
    let answer: Answer<'_> = serde_json::from_slice(answer).ok()?;
    let of_feature = |feature: &&str| {
        let name = feature.replacen(':', "__", 1);
        let at = answer.metadata.feature_names.iter().position(|one| *one == name)?;
        let Column { values, statuses } = answer.results.get(at)?;
        if values.len() != entities || statuses.len() != entities {
            return None;
        }
        Some(values.iter().zip(statuses).map(|(value, status)| numbers(value, status)).collect())
    };
    features.iter().map(of_feature).collect()
}

fn numbers(value: &RawValue, status: &str) -> Found {
    match status {
        "PRESENT" => {}
        "OUTSIDE_MAX_AGE" => return Err(LookupMiss::Stale),
        _ => return Err(LookupMiss::Absent),
    }
    let json = value.get();
    if json == "null" {
        return Err(LookupMiss::Absent);
    }
    let all = if json.starts_with('[') { serde_json::from_str(json).ok() } else { Some(vec![value]) };
    let number = |value: &RawValue| FeatureNumber::parse(value.get()).ok_or(LookupMiss::NotNumber);
    all.ok_or(LookupMiss::NotNumber)?.into_iter().map(number).collect()
}
