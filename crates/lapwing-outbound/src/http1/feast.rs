//! Feast's `POST /get-online-features`: how many entities are asked about, and how many of their features are there.
//!
//! A request names entities as lists under the names of their join keys; the answer has a list of values and one of statuses for each
//! feature, and for each join key too. What is not there is null, whatever its status: with Redis behind it, Feast 0.67 says `PRESENT` of
//! entities that it does not know. Both are read as they pass, and nothing of them is kept but counts.

use std::sync::{Arc, LazyLock};

use lapwing_protocol::wire::{JsonPaths, JsonReader, JsonValue};

use crate::call::CallLookups;

/// The end of its path.
const PATH: &str = "/get-online-features";
/// The status of a feature that is there.
const PRESENT: &[u8] = b"PRESENT";

static ASKED: LazyLock<Arc<JsonPaths<()>>> = LazyLock::new(|| Arc::new(JsonPaths::new([("entities.*", ())])));
static ANSWERED: LazyLock<Arc<JsonPaths<Cell>>> =
    LazyLock::new(|| Arc::new(JsonPaths::new([("results[].values[]", Cell::Value), ("results[].statuses[]", Cell::Status)])));

/// What an answer says of one feature of one entity.
#[derive(Clone, Copy, Debug)]
enum Cell {
    Value,
    Status,
}

/// One call.
#[derive(Debug)]
pub(crate) struct FeastCall {
    asked: JsonReader<()>,
    answered: JsonReader<Cell>,
    join_keys: u64,
    /// The longest list of entities.
    entities: u64,
    values: u64,
    nulls: u64,
    /// Statuses that say that a value is not there, or too old.
    absent: u64,
}

impl FeastCall {
    /// Whether a call to this path is Feast's.
    pub(crate) fn is_one(method: &str, path: &str) -> bool {
        let path = path.split('?').next().unwrap_or(path);
        method == "POST" && path.ends_with(PATH)
    }

    /// One to this path, if it is Feast's.
    pub(crate) fn of(method: &str, path: &str) -> Option<Box<Self>> {
        Self::is_one(method, path).then(|| {
            let (asked, answered) = (JsonReader::new(ASKED.clone()), JsonReader::new(ANSWERED.clone()));
            Box::new(Self { asked, answered, join_keys: 0, entities: 0, values: 0, nulls: 0, absent: 0 })
        })
    }

    /// What it is counted as.
    pub(crate) const NAME: &'static str = "get-online-features";

    pub(crate) fn request(&mut self, bytes: &[u8]) {
        let (join_keys, entities) = (&mut self.join_keys, &mut self.entities);
        self.asked.feed(bytes, &mut |(), value| {
            if let JsonValue::Array { len } = value {
                (*join_keys, *entities) = (*join_keys + 1, (*entities).max(len));
            }
        });
    }

    pub(crate) fn response(&mut self, bytes: &[u8]) {
        let (values, nulls, absent) = (&mut self.values, &mut self.nulls, &mut self.absent);
        self.answered.feed(bytes, &mut |cell, value| match (cell, value) {
            (Cell::Value, value) => {
                *values += 1;
                *nulls += u64::from(value == JsonValue::Null);
            }
            (Cell::Status, JsonValue::Text { head, .. }) => *absent += u64::from(head != PRESENT),
            (Cell::Status, _) => {}
        });
    }

    /// How many entities were asked about.
    pub(crate) const fn keys(&self) -> u64 {
        self.entities
    }

    /// The features that are there, and those that are not.
    pub(crate) fn lookups(&self) -> CallLookups {
        let of_join_keys = self.join_keys.saturating_mul(self.entities);
        // both are of the same cells
        let misses = self.nulls.max(self.absent);
        CallLookups { hits: self.values.saturating_sub(of_join_keys).saturating_sub(misses), misses }
    }
}
