//! Names of keys in Redis.

use crate::key::CacheKey;

/// How many groups of models have epochs of their own. With another number, processes would not mean the same ones.
const GROUPS: u16 = 1_024;

/// What has an epoch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EpochSlot {
    /// All answers.
    All,
    /// Those of requests that name no model.
    Unnamed,
    /// Those of a group of models.
    Group(u16),
}

impl EpochSlot {
    /// That of a model, or of requests that name none.
    pub(crate) fn of(model: Option<&str>) -> Self {
        let Some(model) = model else { return Self::Unnamed };
        let [a, b, ..] = *blake3::hash(model.as_bytes()).as_bytes();
        Self::Group(u16::from_le_bytes([a, b]) % GROUPS)
    }
}

/// Makes names that begin alike.
#[derive(Clone, Debug)]
pub(crate) struct SharedNames {
    prefix: String,
}

impl SharedNames {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The name of an answer.
    pub(crate) fn answer(&self, key: &CacheKey) -> Vec<u8> {
        let hex = blake3::Hash::from_bytes(*key.as_bytes()).to_hex();
        [self.prefix.as_bytes(), b"a:", hex.as_bytes()].concat()
    }

    /// The name of an epoch.
    pub(crate) fn epoch(&self, slot: EpochSlot) -> Vec<u8> {
        match slot {
            EpochSlot::All => format!("{}e:all", self.prefix),
            EpochSlot::Unnamed => format!("{}e:unnamed", self.prefix),
            EpochSlot::Group(number) => format!("{}e:{number}", self.prefix),
        }
        .into_bytes()
    }
}
