//! The families of the downstreams in `/metrics`; absent where there are none.

use std::fmt;
use std::sync::Arc;

use lapwing_metrics::ScrapedDurations;
use lapwing_metrics::defs;
use lapwing_metrics::exposition::{Encoder, count, family, gauge, seconds};

use crate::cache::{CacheFamilies, encode_cache};
use crate::figures::{Lasted, NamedCalls, WaitJoin};
use crate::name::CallName;
use crate::state::{DownstreamState, Downstreams};
use crate::unread::Unread;

/// What a scrape shows of one downstream.
#[derive(Debug)]
pub struct DownstreamFamilies {
    name: Arc<str>,
    connections: u64,
    connections_open: u64,
    connects_failed: u64,
    bytes: [(&'static str, u64); 2],
    calls: Vec<(CallName, NamedCalls)>,
    keys: u64,
    lookups: [(&'static str, u64); 2],
    durations: ScrapedDurations,
    waits: Vec<(WaitJoin, Lasted)>,
    unread: Vec<(Unread, u64)>,
    cache: Option<CacheFamilies>,
}

impl Downstreams {
    /// What a scrape shows, with native histograms where the format has them.
    #[must_use]
    pub fn families(&self, native_schema: Option<i8>) -> Vec<DownstreamFamilies> {
        self.list.iter().map(|one| one.families(native_schema)).collect()
    }
}

impl DownstreamState {
    fn families(&self, native_schema: Option<i8>) -> DownstreamFamilies {
        let figures = self.figures.lock();
        DownstreamFamilies {
            name: self.name.clone(),
            connections: figures.connections,
            connections_open: figures.connections_open,
            connects_failed: figures.connects_failed,
            bytes: [("sent", figures.bytes_sent), ("received", figures.bytes_received)],
            // what is in no table is there from the beginning, so that there is something to rate
            calls: figures.named_and(CallName::other()).collect(),
            keys: figures.keys,
            lookups: [("hit", figures.hits), ("miss", figures.misses)],
            durations: figures.durations.scraped(native_schema),
            waits: figures.waits().collect(),
            unread: figures.unread().collect(),
            cache: self.cache.as_ref().map(|cache| cache.families(&self.name)),
        }
    }
}

/// Writes them; nothing where there are no downstreams.
///
/// # Errors
///
/// When a family cannot be encoded, which does not happen.
pub fn encode(all: &[DownstreamFamilies], encoder: &mut dyn Encoder) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    family(encoder, &defs::DOWNSTREAM_CALLS, |encoder| {
        each(all, |one, label| {
            one.calls.iter().try_for_each(|(name, calls)| {
                let results =
                    [("answered", calls.calls - calls.failed - calls.cut), ("failed", calls.failed), ("cut", calls.cut)];
                let occurred = results.into_iter().filter(|(result, n)| *n > 0 || *result == "answered");
                occurred
                    .into_iter()
                    .try_for_each(|(result, n)| count(encoder, vec![label, ("name", name.text()), ("result", result)], n))
            })
        })
    })?;
    family(encoder, &defs::DOWNSTREAM_CALL_DURATION, |encoder| {
        each(all, |one, label| encoder.histogram(&vec![label].into(), &one.durations.sample()))
    })?;
    family(encoder, &defs::DOWNSTREAM_KEYS, |encoder| each(all, |one, label| count(encoder, vec![label], one.keys)))?;
    family(encoder, &defs::DOWNSTREAM_LOOKUPS, |encoder| {
        each(all, |one, label| {
            one.lookups.iter().try_for_each(|(result, n)| count(encoder, vec![label, ("result", *result)], *n))
        })
    })?;
    family(encoder, &defs::DOWNSTREAM_BYTES, |encoder| {
        each(all, |one, label| one.bytes.iter().try_for_each(|(way, n)| count(encoder, vec![label, ("direction", *way)], *n)))
    })?;
    family(encoder, &defs::DOWNSTREAM_WAITS, |encoder| {
        each(all, |one, label| {
            one.waits.iter().try_for_each(|(join, wait)| count(encoder, vec![label, ("join", join.name())], wait.count))
        })
    })?;
    family(encoder, &defs::DOWNSTREAM_WAIT_SECONDS, |encoder| {
        each(all, |one, label| {
            one.waits.iter().try_for_each(|(join, wait)| count(encoder, vec![label, ("join", join.name())], seconds(wait.ns)))
        })
    })?;
    family(encoder, &defs::DOWNSTREAM_CONNECTIONS_OPEN, |encoder| {
        each(all, |one, label| gauge(encoder, vec![label], one.connections_open))
    })?;
    family(encoder, &defs::DOWNSTREAM_CONNECTIONS, |encoder| {
        each(all, |one, label| count(encoder, vec![label], one.connections))
    })?;
    family(encoder, &defs::DOWNSTREAM_CONNECTS_FAILED, |encoder| {
        each(all, |one, label| count(encoder, vec![label], one.connects_failed))
    })?;
    family(encoder, &defs::DOWNSTREAM_UNREAD, |encoder| {
        each(all, |one, label| one.unread.iter().try_for_each(|(why, n)| count(encoder, vec![label, ("reason", why.name())], *n)))
    })?;
    encode_cache(&all.iter().filter_map(|one| one.cache.as_ref()).collect::<Vec<_>>(), encoder)
}

/// Calls `write` for each, with its label.
fn each<'a>(
    all: &'a [DownstreamFamilies],
    mut write: impl FnMut(&'a DownstreamFamilies, (&'static str, &'a str)) -> fmt::Result,
) -> fmt::Result {
    all.iter().try_for_each(|one| write(one, ("downstream", &*one.name)))
}
