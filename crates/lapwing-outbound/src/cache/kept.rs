//! The replies of a Redis that are kept: as many as fit into so many bytes, each until it is too old, or its key may have changed.

use std::hash::BuildHasherDefault;

use quick_cache::unsync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use rustc_hash::FxHasher;

use super::command_class::{CommandClass, ReadShape, WrittenKeys};
use super::context::RespContext;
use super::figures::{KeptFigures, NotKept};
use super::versions::{KeyVersions, SeenVersion, Written};
use crate::cache_config::{DownstreamCache, DownstreamCacheMode, KeptAbsence};
use lapwing_ledger::Stamp;

/// What the table needs for an entry beside its bytes: its place in lists, and that the table is up to half empty.
const ENTRY_BYTES: u64 = 2 * (size_of::<Box<[u8]>>() + size_of::<KeptReply>() + 21) as u64 + 48;
/// What a reply costs that has next to nothing in it.
const SMALL_ENTRY: u64 = 256;
/// The longest reply that is put together of several.
pub(crate) const MAX_ANSWER: usize = 1 << 20;

/// What keys begin with.
mod tag {
    /// What `GET` and `MGET` say of a key.
    pub(crate) const VALUE: u8 = 0;
    /// What `HGET` and `HMGET` say of a field.
    pub(crate) const FIELD: u8 = 1;
    /// A whole reply.
    pub(crate) const WHOLE: u8 = 2;
}

/// A reply, or an element of one.
#[derive(Debug)]
struct KeptReply {
    bytes: Box<[u8]>,
    asked: Stamp,
    seen: SeenVersion,
}

#[derive(Clone, Copy, Debug)]
struct ByCost;

impl Weighter<Box<[u8]>, KeptReply> for ByCost {
    fn weight(&self, key: &Box<[u8]>, reply: &KeptReply) -> u64 {
        (key.len() + reply.bytes.len()) as u64 + ENTRY_BYTES
    }
}

/// Counts what gives way.
#[derive(Clone, Copy, Debug)]
struct CountEvicted;

impl Lifecycle<Box<[u8]>, KeptReply> for CountEvicted {
    type RequestState = u64;

    fn on_evict(&self, evicted: &mut u64, _: Box<[u8]>, _: KeptReply) {
        *evicted += 1;
    }
}

type Table = Cache<Box<[u8]>, KeptReply, ByCost, BuildHasherDefault<FxHasher>, CountEvicted>;

/// A place for a reply, or for an element of one.
#[derive(Clone, Debug)]
pub(crate) struct ReplyPlace {
    key: Box<[u8]>,
    /// How its key was when it was asked for; `None` if it is not to be kept.
    seen: Option<SeenVersion>,
}

/// What is kept of one downstream.
#[derive(Debug)]
pub(crate) struct KeptReplies {
    table: Table,
    pub(crate) versions: KeyVersions,
    pub(crate) figures: KeptFigures,
    prefixes: Box<[Box<[u8]>]>,
    pub(crate) mode: DownstreamCacheMode,
    pub(crate) keeps_absent: bool,
    pub(crate) max_entry: usize,
    ttl_ns: u64,
    /// The key that is looked for.
    wanted: Vec<u8>,
}

impl KeptReplies {
    /// Nothing, under these rules.
    pub(crate) fn new(config: &DownstreamCache) -> Self {
        let max_bytes = config.max_bytes.get();
        let items = usize::try_from(max_bytes / SMALL_ENTRY).unwrap_or(usize::MAX).max(64);
        let mut options = OptionsBuilder::new();
        options.weight_capacity(max_bytes).estimated_items_capacity(items);
        // the builder only refuses to be without these two
        let table = match options.build() {
            Ok(options) => Table::with_options(options, ByCost, BuildHasherDefault::default(), CountEvicted),
            Err(_) => Table::with(items, max_bytes, ByCost, BuildHasherDefault::default(), CountEvicted),
        };
        let prefixes: Box<[Box<[u8]>]> = config.prefixes.iter().map(|prefix| prefix.as_bytes().into()).collect();
        let ttl_ns = config.ttl.as_nanos();
        Self {
            table,
            versions: KeyVersions::new(ttl_ns),
            figures: KeptFigures::new(prefixes.len()),
            prefixes,
            mode: config.mode,
            keeps_absent: config.absent == KeptAbsence::Keep,
            max_entry: usize::try_from(config.max_entry.get()).unwrap_or(usize::MAX),
            ttl_ns,
            wanted: Vec::new(),
        }
    }

    /// The first rule that lists a key.
    fn rule_of(&self, key: &[u8]) -> Option<usize> {
        self.prefixes.iter().position(|prefix| key.starts_with(prefix))
    }

    /// The rule of a read's first key, if all of them are listed.
    pub(crate) fn rule_of_read(&self, shape: ReadShape, arguments: &[&[u8]]) -> Option<usize> {
        let keys = if shape == ReadShape::Values { arguments } else { arguments.get(..1)? };
        let rule = self.rule_of(keys.first()?)?;
        keys.iter().all(|key| self.rule_of(key).is_some()).then_some(rule)
    }

    /// What is kept of a read with these words, as the store would say it.
    pub(crate) fn answer(&mut self, context: RespContext, shape: ReadShape, words: &[&[u8]], now: Stamp) -> Option<Vec<u8>> {
        let parts = parts(shape, words);
        let mut answer = Vec::new();
        if matches!(shape, ReadShape::Values | ReadShape::Fields) {
            answer.extend_from_slice(format!("*{}\r\n", parts.clone().count()).as_bytes());
        }
        for (tag, part) in parts {
            write_key(&mut self.wanted, context, tag, part);
            if !self.extend(&mut answer, now) || answer.len() > MAX_ANSWER.max(self.max_entry) {
                return None;
            }
        }
        Some(answer)
    }

    /// Appends what is kept under the wanted key, if it is still good.
    fn extend(&mut self, answer: &mut Vec<u8>, now: Stamp) -> bool {
        let Some(kept) = self.table.get(&self.wanted[..]) else { return false };
        if now.since(kept.asked) < self.ttl_ns && self.versions.is_current(kept.seen) {
            answer.extend_from_slice(&kept.bytes);
            return true;
        }
        self.table.remove(&self.wanted[..]);
        false
    }

    /// The places for the reply to a read, or for its elements.
    pub(crate) fn places(&mut self, context: RespContext, shape: ReadShape, words: &[&[u8]], now: Stamp) -> Vec<ReplyPlace> {
        let place = |(tag, part): (u8, Part<'_>)| {
            let mut key = Vec::new();
            let seen = part.clone().nth(usize::from(tag == tag::WHOLE)).and_then(|key| self.versions.see(key, now));
            write_key(&mut key, context, tag, part);
            ReplyPlace { key: key.into(), seen }
        };
        parts(shape, words).map(place).collect()
    }

    /// Keeps a reply, or an element of one, that was asked for then.
    pub(crate) fn keep(&mut self, place: ReplyPlace, bytes: &[u8], asked: Stamp) {
        let Some(seen) = place.seen.filter(|seen| self.versions.is_current(*seen)) else {
            return self.figures.refuse(NotKept::Changed);
        };
        if bytes.len() > self.max_entry {
            return self.figures.refuse(NotKept::TooLarge);
        }
        // one that was asked for later is newer
        if self.table.peek(&place.key[..]).is_some_and(|kept| kept.asked > asked && self.versions.is_current(kept.seen)) {
            return;
        }
        let mut evicted = 0;
        self.table.insert_with_lifecycle(place.key, KeptReply { bytes: bytes.into(), asked, seen }, &mut evicted);
        self.figures.kept += 1;
        self.figures.evicted += evicted;
    }

    /// What a command may change of what may be kept.
    pub(crate) fn written(&self, class: CommandClass, arguments: &[&[u8]]) -> Vec<Written> {
        match class {
            CommandClass::Writes(keys) => self.written_keys(keys, arguments),
            CommandClass::Unknown => vec![Written::All],
            _ => Vec::new(),
        }
    }

    fn written_keys(&self, keys: WrittenKeys, arguments: &[&[u8]]) -> Vec<Written> {
        keys.of(arguments).filter(|key| self.rule_of(key).is_some()).map(Written::key).collect()
    }

    /// Counts what a write forgets.
    pub(crate) fn count_forgotten(&mut self, written: &[Written]) {
        let of_all = written.iter().filter(|one| **one == Written::All).count() as u64;
        self.figures.forgot_all += of_all;
        self.figures.forgot_keys += written.len() as u64 - of_all;
    }

    /// How many replies are kept, and the bytes that they cost.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.table.len() as u64, self.table.weight())
    }

    /// The prefixes, as they were given.
    pub(crate) fn rules(&self) -> impl Iterator<Item = String> {
        self.prefixes.iter().map(|prefix| String::from_utf8_lossy(prefix).into_owned())
    }
}

/// The words that make a key, after its tag.
type Part<'w> = std::iter::Chain<std::iter::Copied<std::slice::Iter<'w, &'w [u8]>>, std::option::IntoIter<&'w [u8]>>;

/// What a read with these words asks for, each with the tag of its place.
fn parts<'w>(shape: ReadShape, words: &'w [&'w [u8]]) -> impl Iterator<Item = (u8, Part<'w>)> + Clone {
    let (key, rest) = (words.get(1..2).unwrap_or_default(), words.get(2..).unwrap_or_default());
    let keys = words.get(1..).unwrap_or_default();
    let (tag, fixed, each) = match shape {
        ReadShape::Value => (tag::VALUE, key, &[][..]),
        ReadShape::Values => (tag::VALUE, &[][..], keys),
        ReadShape::Field => (tag::FIELD, key, rest),
        ReadShape::Fields => (tag::FIELD, key, rest),
        ReadShape::Whole => (tag::WHOLE, words, &[][..]),
    };
    let alone = each.is_empty().then_some((tag, fixed.iter().copied().chain(None)));
    alone.into_iter().chain(each.iter().map(move |last| (tag, fixed.iter().copied().chain(Some(*last)))))
}

/// Makes a key of its tag, what the connection's replies depend on, and these words; the name of a command in upper case.
fn write_key(key: &mut Vec<u8>, context: RespContext, tag: u8, words: Part<'_>) {
    key.clear();
    key.push(tag);
    context.write(key);
    for (at, word) in words.enumerate() {
        key.extend_from_slice(&(word.len() as u32).to_le_bytes()); // what is held is far shorter
        let from = key.len();
        key.extend_from_slice(word);
        if tag == tag::WHOLE && at == 0 {
            key[from..].make_ascii_uppercase();
        }
    }
}
