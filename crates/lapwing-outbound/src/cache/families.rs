//! The families of kept answers in `/metrics`; absent where none are kept.

use std::fmt;
use std::sync::Arc;

use super::figures::NamedLookups;
use super::store::StoreCache;
use crate::name::CallName;
use lapwing_metrics::defs;
use lapwing_metrics::exposition::{Encoder, count, family, gauge, seconds};

/// What a scrape shows of one downstream.
#[derive(Debug)]
pub(crate) struct CacheFamilies {
    name: Arc<str>,
    lookups: Vec<(CallName, NamedLookups)>,
    saved_ns: u64,
    entries: u64,
    bytes: u64,
    evicted: u64,
    forgot: [(&'static str, u64); 2],
    differed: u64,
    untouched: u64,
    refused: Vec<(&'static str, u64)>,
}

impl StoreCache {
    /// What a scrape shows of it.
    pub(crate) fn families(&self, name: &Arc<str>) -> CacheFamilies {
        self.look(|of| CacheFamilies {
            name: name.clone(),
            // nothing is looked for under this name: it is there from the beginning, so that there is something to rate
            lookups: of.figures.named().chain([(CallName::other(), NamedLookups::default())]).collect(),
            saved_ns: of.figures.saved_ns(),
            entries: of.size.0,
            bytes: of.size.1,
            evicted: of.figures.evicted,
            forgot: [("keys", of.figures.forgot_keys), ("all", of.figures.forgot_all)],
            differed: of.figures.differed,
            untouched: of.figures.untouched,
            refused: of.figures.refused.iter().map(|(why, count)| (*why, *count)).collect(),
        })
    }
}

/// Writes them; nothing where nothing is kept.
///
/// # Errors
///
/// When a family cannot be encoded, which does not happen.
pub(crate) fn encode_cache(all: &[&CacheFamilies], encoder: &mut dyn Encoder) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    family(encoder, &defs::DOWNSTREAM_CACHE_LOOKUPS, |encoder| {
        each(all, |one, label| {
            one.lookups.iter().try_for_each(|(name, NamedLookups { found, .. })| {
                let results = [("hit", found.hits), ("miss", found.misses)];
                results
                    .into_iter()
                    .try_for_each(|(result, n)| count(encoder, vec![label, ("name", name.text()), ("result", result)], n))
            })
        })
    })?;
    family(encoder, &defs::DOWNSTREAM_CACHE_SAVED, |encoder| {
        each(all, |one, label| count(encoder, vec![label], seconds(one.saved_ns)))
    })?;
    family(encoder, &defs::DOWNSTREAM_CACHE_ENTRIES, |encoder| each(all, |one, label| gauge(encoder, vec![label], one.entries)))?;
    family(encoder, &defs::DOWNSTREAM_CACHE_BYTES, |encoder| each(all, |one, label| gauge(encoder, vec![label], one.bytes)))?;
    family(encoder, &defs::DOWNSTREAM_CACHE_EVICTED, |encoder| each(all, |one, label| count(encoder, vec![label], one.evicted)))?;
    family(encoder, &defs::DOWNSTREAM_CACHE_WRITES, |encoder| {
        each(all, |one, label| one.forgot.iter().try_for_each(|(what, n)| count(encoder, vec![label, ("forgets", *what)], *n)))
    })?;
    family(encoder, &defs::DOWNSTREAM_CACHE_DIFFERED, |encoder| {
        each(all, |one, label| count(encoder, vec![label], one.differed))
    })?;
    family(encoder, &defs::DOWNSTREAM_CACHE_UNTOUCHED, |encoder| {
        each(all, |one, label| count(encoder, vec![label], one.untouched))
    })?;
    family(encoder, &defs::DOWNSTREAM_CACHE_REFUSED, |encoder| {
        each(all, |one, label| one.refused.iter().try_for_each(|(why, n)| count(encoder, vec![label, ("reason", *why)], *n)))
    })
}

/// Calls `write` for each, with its label.
fn each<'a>(
    all: &[&'a CacheFamilies],
    mut write: impl FnMut(&'a CacheFamilies, (&'static str, &'a str)) -> fmt::Result,
) -> fmt::Result {
    all.iter().try_for_each(|one| write(one, ("downstream", &*one.name)))
}
