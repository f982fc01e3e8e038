//! Why a request is refused: it needs features that are not there.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::number::LookupMiss;

/// A feature that is not there.
#[derive(Clone, Debug, PartialEq)]
pub struct MissingFeature {
    /// The entity, by the names of its parts.
    pub entity: Map<String, Value>,
    /// The feature.
    pub feature: Box<str>,
    /// Why it is not there.
    pub why: LookupMiss,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HydrateRefused {
    /// The store has not what the request needs: to ask again does not help.
    #[error("features are missing of {missed} of {entities} entities: {}", First(features))]
    Missing {
        /// How many entities it names.
        entities: usize,
        /// Of how many something is missing.
        missed: usize,
        /// The first that are missing.
        features: Vec<MissingFeature>,
    },
    /// The store cannot be asked, or what it answers cannot be read.
    #[error("the feature store cannot be read: {0}")]
    Failed(String),
    /// The store did not answer in time.
    #[error("the feature store did not answer within the deadline of {}", lapwing_settings::Period(*.0))]
    Late(std::time::Duration),
}

/// The first missing feature in words.
struct First<'a>(&'a [MissingFeature]);

impl fmt::Display for First<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(MissingFeature { entity, feature, why }) = self.0.first() else { return Ok(()) };
        write!(f, "{feature} of {}: {why}", Value::from(entity.clone()))
    }
}

impl HydrateRefused {
    /// The body of the answer, as JSON: `error` as servers of both protocols say it, and what is missing.
    #[must_use]
    pub fn body(&self) -> String {
        let mut body = json!({"error": format!("lapwing: {self}")});
        if let Self::Missing { features, .. } = self {
            let one = |missing: &MissingFeature| json!({"entity": missing.entity, "feature": missing.feature, "reason": missing.why.to_string()});
            body["missing"] = features.iter().map(one).collect();
        }
        format!("{body}\n")
    }
}
