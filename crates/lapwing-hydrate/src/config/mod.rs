//! The list `hydrate`: which requests get features written into them, of which entities, and from where.

mod checks;
mod store;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use checks::check_hydrate;
use store::HYDRATE_STORE;
pub use store::{HydrateStore, KeyVersion, PlainEncoding, StoreKind};

use crate::types::{EntityType, FeatureDatatype};
use lapwing_protocol::request_match::{MATCH, RouteMatch};
use lapwing_settings::{Form, Period, Record};

/// What a rule is.
pub const HYDRATE: Record = Record {
    what: "a section, as in {match: {model: fraud}, entity: [{name: user, tensor: user}], store: {kind: redis, url: redis://127.0.0.1:6379, key: \"user:{user}\"}, features: [{name: age}], into: {tensor: features}}",
    keys: &[
        ("match", Form::Record(&MATCH)),
        ("entity", Form::List(&ENTITY)),
        ("store", Form::Record(&HYDRATE_STORE)),
        ("features", Form::List(&FEATURE)),
        ("into", Form::Record(&INTO)),
        ("on_miss", Form::Text),
        ("deadline", Form::Text),
    ],
    stand_in: &[],
};

/// What a part of an entity's key is.
const ENTITY: Record = Record {
    what: "a section, as in {name: driver_id, tensor: driver_id}",
    keys: &[("name", Form::Text), ("tensor", Form::Text), ("pointer", Form::Text), ("type", Form::Text)],
    stand_in: &[],
};

/// What a feature is.
const FEATURE: Record = Record {
    what: "a section, as in {name: \"stats:trips\", default: 0}",
    keys: &[("name", Form::Text), ("default", Form::Number), ("width", Form::Number)],
    stand_in: &[],
};

/// What a place for features is.
const INTO: Record = Record {
    what: "a section, as in {tensor: features, datatype: FP32} or {pointer: /instances/*/features}",
    keys: &[("tensor", Form::Text), ("pointer", Form::Text), ("datatype", Form::Text)],
    stand_in: &[],
};

/// Requests that get features, of which store, and where they are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "rule")]
pub struct HydrateRule {
    /// Which requests it takes: those to which all that is given applies. A request is of the first rule that takes it.
    #[serde(rename = "match")]
    pub matches: RouteMatch,
    /// Where a request names its entities: one value for each row, or one for all. Several parts are one key, as Feast's join keys.
    pub entity: Vec<HydrateEntity>,
    /// Where the features are.
    pub store: HydrateStore,
    /// The features, in the order of a row.
    pub features: Vec<HydrateFeature>,
    /// Where they are written. A request that has something there already is left as it is.
    pub into: HydrateInto,
    /// What becomes of a request if a feature is not there, or the store does not answer in time.
    pub on_miss: OnMiss,
    /// How long the store may take.
    pub deadline: Period,
}

impl Default for HydrateRule {
    fn default() -> Self {
        Self {
            matches: RouteMatch::default(),
            entity: Vec::new(),
            store: HydrateStore::default(),
            features: Vec::new(),
            into: HydrateInto::default(),
            on_miss: OnMiss::Fail,
            deadline: Period::from_millis(5),
        }
    }
}

/// A part of the key of entities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "part")]
pub struct HydrateEntity {
    /// Its name: Feast's join key, or what stands in braces in `store.key`.
    pub name: String,
    /// The input tensor whose elements it is (Open Inference Protocol), with one for each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// Where it is instead: a JSON pointer (RFC 6901), in which one `*` is any element of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/instances/*/driver_id", example = "/parameters/user")]
    pub pointer: Option<String>,
    /// What it is to the store. Without it, an integer is one of 64 bits, and a text is a text.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub of_type: Option<EntityType>,
}

/// A feature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "feature")]
pub struct HydrateFeature {
    /// Its name: with `kind: feast`, `view:feature`; else a field of a hash, or what `{feature}` is in `store.key`.
    pub name: String,
    /// What it is where there is none (`on_miss: default`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<f64>,
    /// How many numbers it is.
    pub width: usize,
}

impl Default for HydrateFeature {
    fn default() -> Self {
        Self { name: String::new(), default: None, width: 1 }
    }
}

/// Where features are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "into")]
pub struct HydrateInto {
    /// The name of a further input tensor (Open Inference Protocol), of the shape rows × features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// Instead, a JSON pointer (RFC 6901) to a member that becomes a list of numbers. With a `*`, each element of that list gets its own
    /// entity's; without, the member is a row, or where there are several entities, a list of rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/instances/*/features")]
    pub pointer: Option<String>,
    /// The type of the numbers.
    pub datatype: FeatureDatatype,
}

/// What becomes of a request whose features are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnMiss {
    /// It is refused: 422 if the store has not what it needs, 502 if the store cannot be asked, 504 if it does not answer in time.
    #[default]
    Fail,
    /// It gets each feature's `default`.
    Default,
}
