//! Feast's `POST /get-online-features`: how many entities are asked about, and how many of their features are there.
//!
//! A request names entities as lists under the names of their join keys; the answer has a list of statuses for each feature, and for each
//! join key one too, whose statuses are no features. Both are read as they pass, and nothing of them is kept but counts.

use std::sync::{Arc, LazyLock};

use lapwing_protocol::wire::{JsonPaths, JsonReader, JsonValue};

use crate::call::CallLookups;

/// The end of its path.
const PATH: &str = "/get-online-features";
/// The status of a feature that is there.
const PRESENT: &[u8] = b"PRESENT";

static ASKED: LazyLock<Arc<JsonPaths<()>>> = LazyLock::new(|| Arc::new(JsonPaths::new([("entities.*", ())])));
static ANSWERED: LazyLock<Arc<JsonPaths<()>>> = LazyLock::new(|| Arc::new(JsonPaths::new([("results[].statuses[]", ())])));

/// One call.
#[derive(Debug)]
pub(crate) struct FeastCall {
    asked: JsonReader<()>,
    answered: JsonReader<()>,
    join_keys: u64,
    /// The longest list of entities.
    entities: u64,
    present: u64,
    absent: u64,
}

impl FeastCall {
    /// One to this path, if it is Feast's.
    pub(crate) fn of(method: &str, path: &str) -> Option<Box<Self>> {
        let path = path.split('?').next().unwrap_or(path);
        (method == "POST" && path.ends_with(PATH)).then(|| {
            let (asked, answered) = (JsonReader::new(ASKED.clone()), JsonReader::new(ANSWERED.clone()));
            Box::new(Self { asked, answered, join_keys: 0, entities: 0, present: 0, absent: 0 })
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
        let (present, absent) = (&mut self.present, &mut self.absent);
        self.answered.feed(bytes, &mut |(), value| {
            if let JsonValue::Text { head, .. } = value {
                *if head == PRESENT { &mut *present } else { &mut *absent } += 1;
            }
        });
    }

    /// How many entities were asked about.
    pub(crate) const fn keys(&self) -> u64 {
        self.entities
    }

    /// The features that are there, and those that are not.
    pub(crate) const fn lookups(&self) -> CallLookups {
        let of_join_keys = self.join_keys.saturating_mul(self.entities);
        CallLookups { hits: self.present.saturating_sub(of_join_keys), misses: self.absent }
    }
}
