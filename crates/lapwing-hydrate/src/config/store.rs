//! The store that features are read from, as settings say it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_redis::RedisTarget;
use lapwing_settings::{CLIENT_TLS, ClientTls, FeatureStoreAddress, File, Form, Period, Record, RedisAddress};

/// What a store is.
pub(crate) const HYDRATE_STORE: Record = Record {
    what: "a section, as in {kind: redis, url: redis://127.0.0.1:6379, key: \"user:{user}\"}",
    keys: &[
        ("kind", Form::Text),
        ("url", Form::Text),
        ("password_file", Form::Text),
        ("tls", Form::Record(&CLIENT_TLS)),
        ("key", Form::Text),
        ("encoding", Form::Text),
        ("project", Form::Text),
        ("key_version", Form::Text),
        ("max_age", Form::Text),
    ],
    stand_in: &[],
};

/// How a store is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Redis, with a hash or strings of your own for each entity.
    #[default]
    Redis,
    /// Feast: its online store where that is Redis (`redis://`, `rediss://`), or its feature server (`http://`).
    Feast,
}

/// How values are written in a Redis of your own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlainEncoding {
    /// As numbers in decimal digits; several are apart by commas or spaces.
    #[default]
    Text,
    /// As floating-point numbers of 32 bits, the least significant byte first.
    Float32,
}

/// Feast's `entity_key_serialization_version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KeyVersion {
    /// As older releases of Feast write them.
    #[serde(rename = "2")]
    V2,
    /// Today's.
    #[default]
    #[serde(rename = "3")]
    V3,
}

/// A store of features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "store")]
pub struct HydrateStore {
    /// How it is laid out.
    pub kind: StoreKind,
    /// Where it is: `redis://user@host:port/database`, `rediss://` (TLS), `unix:/path`; Feast's feature server at `http://`.
    pub url: FeatureStoreAddress,
    /// File with the password of the user in `url`, which is read for each connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<File>,
    /// How TLS is spoken to `rediss://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTls>,
    /// With `kind: redis`, the key of an entity's hash: `user:{user}`, with names of `entity` in braces. With `{feature}` in it, the key of a
    /// string for each feature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// With `kind: redis`, how values are written.
    pub encoding: PlainEncoding,
    /// The name of Feast's project, where its Redis is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// How Feast encodes keys in its Redis: `entity_key_serialization_version` in its `feature_store.yaml`.
    pub key_version: KeyVersion,
    /// What in Feast's Redis is older is not there: the view's `ttl`, which Feast's feature server applies itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Period>,
}

impl Default for HydrateStore {
    fn default() -> Self {
        Self {
            kind: StoreKind::Redis,
            url: FeatureStoreAddress::Redis(RedisAddress::Tcp {
                host: "127.0.0.1".to_owned(),
                port: 6379,
                is_tls: false,
                user: None,
                db: 0,
            }),
            password_file: None,
            tls: None,
            key: None,
            encoding: PlainEncoding::Text,
            project: None,
            key_version: KeyVersion::V3,
            max_age: None,
        }
    }
}

impl HydrateStore {
    /// The Redis that it is, if it is one.
    pub(crate) fn redis(&self) -> Option<RedisTarget> {
        let FeatureStoreAddress::Redis(url) = &self.url else { return None };
        Some(RedisTarget {
            url: url.clone(),
            nodes: Vec::new(),
            is_cluster: false,
            sentinel: None,
            password_file: self.password_file.clone(),
            sentinel_password_file: None,
            tls: self.tls.clone().unwrap_or_default(),
        })
    }
}
