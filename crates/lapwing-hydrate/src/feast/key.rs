//! The keys under which Feast keeps an entity's features in Redis.
//!
//! The key of a hash: the join keys, sorted, each as its type and its bytes; their values in the same order, each as type, length and
//! bytes; and the project. From version 3 of the encoding on, the number of join keys comes first and each has its length.

use super::murmur::murmur3;
use crate::config::KeyVersion;
use crate::entity::EntityValue;

/// Feast's numbers of the types that an entity's value may have.
const STRING: u32 = 2;
const INT32: u32 = 3;
const INT64: u32 = 4;

/// How the keys of one kind of entity are made.
#[derive(Debug)]
pub(crate) struct FeastKeys {
    /// All before the values.
    head: Vec<u8>,
    /// Which of the values, as requests have them, comes when.
    order: Vec<usize>,
    project: Box<str>,
}

impl FeastKeys {
    /// Those of entities with these join keys.
    pub(crate) fn new(join_keys: &[&str], project: &str, version: KeyVersion) -> Self {
        let mut order: Vec<usize> = (0..join_keys.len()).collect();
        order.sort_by_key(|at| join_keys[*at]);
        let mut head = Vec::new();
        let mut number = |number: u32, text: &str| {
            head.extend_from_slice(&number.to_le_bytes());
            head.extend_from_slice(text.as_bytes());
        };
        if version == KeyVersion::V3 {
            number(length(join_keys.len()), "");
        }
        for at in &order {
            let name = join_keys[*at];
            if version == KeyVersion::V3 {
                number(STRING, "");
                number(length(name.len()), name);
            } else {
                number(STRING, name);
            }
        }
        Self { head, order, project: project.into() }
    }

    /// The key of the hash of one entity.
    pub(crate) fn key(&self, values: &[EntityValue]) -> Vec<u8> {
        let mut key = self.head.clone();
        for value in self.order.iter().filter_map(|at| values.get(*at)) {
            let mut put = |of: u32, bytes: &[u8]| {
                key.extend_from_slice(&of.to_le_bytes());
                key.extend_from_slice(&length(bytes.len()).to_le_bytes());
                key.extend_from_slice(bytes);
            };
            match value {
                EntityValue::Int64(number) => put(INT64, &number.to_le_bytes()),
                EntityValue::Int32(number) => put(INT32, &number.to_le_bytes()),
                EntityValue::Text(text) => put(STRING, text.as_bytes()),
            }
        }
        key.extend_from_slice(self.project.as_bytes());
        key
    }
}

/// The length of a text, which is bounded by the settings and by what an entity may be.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The field of a hash that holds the feature `view:feature`.
pub(crate) fn field(feature: &str) -> [u8; 4] {
    murmur3(feature.as_bytes())
}

/// The field that says when the features of `view` were made.
pub(crate) fn time_field(view: &str) -> Vec<u8> {
    format!("_ts:{view}").into_bytes()
}
