//! How features are asked for, and what a store's answer says: each kind of store in its own words.

use bytes::Bytes;

use crate::config::{HydrateFeature, HydrateStore, PlainEncoding, StoreKind};
use crate::entity::EntityValues;
use crate::feast::{self, FeastKeys};
use crate::number::{FeatureNumber, Found, LookupMiss};
use crate::template::KeyTemplate;

/// A command of Redis: its words.
pub type HydrateCommand = Vec<Vec<u8>>;

/// What a store is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HydrateQuestion {
    /// Commands for one pipeline. Each is answered by a list of values, some of them null.
    Redis(Vec<HydrateCommand>),
    /// The body of a `POST /get-online-features`.
    Feast(Vec<u8>),
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HydrateAnswer {
    /// What each command was answered.
    Redis(Vec<Vec<Option<Bytes>>>),
    /// The body of the response.
    Feast(Bytes),
}

/// How the features of a rule are asked for.
#[derive(Debug)]
pub(crate) struct Lookup {
    layout: Layout,
    features: Vec<Box<str>>,
    /// The names of the parts of entities.
    names: Vec<Box<str>>,
}

#[derive(Debug)]
enum Layout {
    /// A hash of each entity, or a string of each feature.
    Plain {
        keys: KeyTemplate,
        encoding: PlainEncoding,
    },
    /// A hash of each entity, whose fields are Feast's.
    FeastRedis {
        keys: FeastKeys,
        fields: Vec<Vec<u8>>,
        /// The field behind those that says how old each feature is.
        times: Vec<usize>,
        max_age_s: Option<i64>,
    },
    FeastServer,
}

impl Lookup {
    /// From settings that have been checked; `None` from others.
    pub(crate) fn new(store: &HydrateStore, features: &[HydrateFeature], names: &[&str]) -> Option<Self> {
        let layout = match store.kind {
            StoreKind::Redis => {
                let keys = KeyTemplate::parse(store.key.as_deref()?, names).ok()?;
                Layout::Plain { keys, encoding: store.encoding }
            }
            StoreKind::Feast if store.redis().is_some() => {
                let max_age_s = store.max_age.map(|age| i64::try_from(age.0.as_secs()).unwrap_or(i64::MAX));
                let mut fields: Vec<Vec<u8>> = features.iter().map(|one| feast::field(&one.name).to_vec()).collect();
                let mut times = Vec::new();
                for feature in features.iter().filter(|_| max_age_s.is_some()) {
                    let time = feast::time_field(feature.name.split_once(':')?.0);
                    times.push(fields.iter().position(|field| *field == time).unwrap_or_else(|| {
                        fields.push(time);
                        fields.len() - 1
                    }));
                }
                let keys = FeastKeys::new(names, store.project.as_deref()?, store.key_version);
                Layout::FeastRedis { keys, fields, times, max_age_s }
            }
            StoreKind::Feast => Layout::FeastServer,
        };
        let features = features.iter().map(|feature| feature.name.as_str().into()).collect();
        Some(Self { layout, features, names: names.iter().map(|name| (*name).into()).collect() })
    }

    /// What asks for all features of `entities`.
    pub(crate) fn question(&self, entities: &[EntityValues]) -> HydrateQuestion {
        let command = |name: &str, key: Vec<Vec<u8>>| [vec![name.as_bytes().to_vec()], key].concat();
        let features = || self.features.iter().map(|feature| feature.as_bytes().to_vec());
        match &self.layout {
            Layout::Plain { keys, .. } if keys.has_feature() => HydrateQuestion::Redis(
                entities
                    .iter()
                    .map(|entity| command("MGET", self.features.iter().map(|feature| keys.key(entity, feature)).collect()))
                    .collect(),
            ),
            Layout::Plain { keys, .. } => {
                let of = |entity| command("HMGET", std::iter::once(keys.key(entity, "")).chain(features()).collect());
                HydrateQuestion::Redis(entities.iter().map(|entity| of(entity.as_slice())).collect())
            }
            Layout::FeastRedis { keys, fields, .. } => {
                let of = |entity| command("HMGET", std::iter::once(keys.key(entity)).chain(fields.iter().cloned()).collect());
                HydrateQuestion::Redis(entities.iter().map(|entity| of(entity.as_slice())).collect())
            }
            Layout::FeastServer => {
                let features: Vec<&str> = self.features.iter().map(|feature| &**feature).collect();
                let names: Vec<&str> = self.names.iter().map(|name| &**name).collect();
                HydrateQuestion::Feast(feast::ask(&features, &names, entities))
            }
        }
    }

    /// Reads the answer to a question of so many `entities`, by entity and feature. `None` if it is none. `now_s` are the seconds since 1970.
    pub(crate) fn read(&self, answer: &HydrateAnswer, entities: usize, now_s: i64) -> Option<Vec<Vec<Found>>> {
        match (answer, &self.layout) {
            (HydrateAnswer::Redis(replies), Layout::Plain { encoding, .. }) => {
                let whole = replies.len() == entities && replies.iter().all(|reply| reply.len() == self.features.len());
                let of = |value: &Option<Bytes>| plain(value.as_deref().ok_or(LookupMiss::Absent)?, *encoding);
                whole.then(|| replies.iter().map(|reply| reply.iter().map(of).collect()).collect())
            }
            (HydrateAnswer::Redis(replies), Layout::FeastRedis { fields, times, max_age_s, .. }) => {
                let whole = replies.len() == entities && replies.iter().all(|reply| reply.len() == fields.len());
                let of_entity = |reply: &Vec<Option<Bytes>>| -> Vec<Found> {
                    let is_stale = |at: usize| {
                        let Some((max_age_s, time)) = max_age_s.zip(times.get(at)) else { return false };
                        let made = reply[*time].as_deref().and_then(feast::unix_seconds);
                        made.is_none_or(|made| now_s.saturating_sub(made) > max_age_s)
                    };
                    let of = |(at, value): (usize, &Option<Bytes>)| {
                        let found = feast::numbers(value.as_deref().ok_or(LookupMiss::Absent)?);
                        if found.is_ok() && is_stale(at) { Err(LookupMiss::Stale) } else { found }
                    };
                    reply.iter().take(self.features.len()).enumerate().map(of).collect()
                };
                whole.then(|| replies.iter().map(of_entity).collect())
            }
            (HydrateAnswer::Feast(body), Layout::FeastServer) => {
                let features: Vec<&str> = self.features.iter().map(|feature| &**feature).collect();
                // by entity, not by feature
                let mut columns: Vec<_> = feast::read(body, &features, entities)?.into_iter().map(Vec::into_iter).collect();
                Some((0..entities).map(|_| columns.iter_mut().filter_map(Iterator::next).collect()).collect())
            }
            _ => None,
        }
    }
}

/// The numbers of a value in a Redis of one's own.
fn plain(value: &[u8], encoding: PlainEncoding) -> Found {
    match encoding {
        PlainEncoding::Float32 => {
            let (numbers, []) = value.as_chunks::<4>() else { return Err(LookupMiss::Width) };
            Ok(numbers.iter().map(|bytes| FeatureNumber::Single(f32::from_le_bytes(*bytes))).collect())
        }
        PlainEncoding::Text => {
            let text = std::str::from_utf8(value).map_err(|_| LookupMiss::NotNumber)?;
            let words = text.split([',', ' ']).filter(|word| !word.is_empty());
            let all: Option<Vec<_>> = words.map(FeatureNumber::parse).collect();
            all.filter(|all| !all.is_empty()).ok_or(LookupMiss::NotNumber)
        }
    }
}
