//! JSON objects whose keys are static names, kept in order, and the names that exist in JSON only.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use lapwing_ledger::PerUnit;

/// Names and values that serialize as one JSON object.
#[derive(Clone, Debug)]
pub struct Pairs<T>(pub Vec<(&'static str, T)>);

impl<T> Pairs<T> {
    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Serialize> Serialize for Pairs<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<T: JsonSchema> JsonSchema for Pairs<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        BTreeMap::<String, T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, T>::json_schema(generator)
    }
}

impl<T> FromIterator<(&'static str, T)> for Pairs<T> {
    fn from_iter<I: IntoIterator<Item = (&'static str, T)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// The key of a per-unit slot: the name of the stage or phase, and for the second slot of forward `forward_flop`.
#[must_use]
pub const fn slot_key(slot: PerUnit) -> &'static str {
    match slot {
        PerUnit::ForwardFlop => "forward_flop",
        _ => slot.name(),
    }
}
