//! What `/downstreams` shows of the kept answers of one downstream. Durations are nanoseconds; counts are since the start.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::figures::{Found, KeptFigures, NamedLookups};
use super::store::StoreCache;
use crate::cache_config::DownstreamCacheMode;
use crate::name::CallName;

/// Answers that are kept and given again.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DownstreamCache")]
pub(crate) struct CacheView {
    mode: DownstreamCacheMode,
    /// Calls that were answered from memory; in `observe`, that would have been.
    hits: u64,
    /// Calls that were looked for and not found.
    misses: u64,
    /// What the hits would have taken: each the mean of what the store takes for a call of its name.
    saved_ns: u64,
    /// By the name of the command or method.
    by_name: BTreeMap<&'static str, NamedLookupsView>,
    /// By the prefix or path that lists it.
    by_rule: BTreeMap<String, FoundView>,
    /// Answers that are kept.
    entries: u64,
    /// What they cost, with all that keeps them.
    bytes: u64,
    /// Answers that were kept, ever.
    kept: u64,
    /// Answers that gave way to others.
    evicted: u64,
    /// Writes to what may be kept.
    forgot_keys: u64,
    /// Calls that may have changed anything: scripts, `FLUSHALL`, what is not known.
    forgot_all: u64,
    /// In `observe`, how often the store said something else than what would have been given.
    differed: u64,
    /// Connections that are passed on untouched.
    untouched: u64,
    /// Reading calls that were not answered from memory, and answers that were not kept, by reason.
    refused: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FoundView {
    hits: u64,
    misses: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NamedLookupsView {
    hits: u64,
    misses: u64,
    /// What the store takes, in the mean.
    store_mean_ns: u64,
    saved_ns: u64,
}

impl StoreCache {
    /// What is known of it.
    pub(crate) fn view(&self) -> CacheView {
        self.look(|of| {
            let rules = of.rules.into_iter().zip(of.figures.by_rule());
            CacheView::of(of.mode, of.figures, rules.map(|(rule, found)| (rule, FoundView::of(*found))).collect(), of.size)
        })
    }
}

impl FoundView {
    const fn of(Found { hits, misses }: Found) -> Self {
        Self { hits, misses }
    }
}

impl CacheView {
    fn of(
        mode: DownstreamCacheMode,
        figures: &KeptFigures,
        by_rule: BTreeMap<String, FoundView>,
        (entries, bytes): (u64, u64),
    ) -> Self {
        let named = |(name, named): (CallName, NamedLookups)| {
            let Found { hits, misses } = named.found;
            let store_mean_ns = named.asked_ns / named.asked.max(1);
            (name.text(), NamedLookupsView { hits, misses, store_mean_ns, saved_ns: named.saved_ns() })
        };
        let by_name: BTreeMap<_, _> = figures.named().map(named).collect();
        Self {
            mode,
            hits: by_name.values().map(|named| named.hits).sum(),
            misses: by_name.values().map(|named| named.misses).sum(),
            saved_ns: figures.saved_ns(),
            by_name,
            by_rule,
            entries,
            bytes,
            kept: figures.kept,
            evicted: figures.evicted,
            forgot_keys: figures.forgot_keys,
            forgot_all: figures.forgot_all,
            differed: figures.differed,
            untouched: figures.untouched,
            refused: figures.refused.iter().filter(|(_, count)| **count > 0).map(|(why, count)| (*why, *count)).collect(),
        }
    }
}

impl fmt::Display for CacheView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, hits, misses, saved_ns, entries, bytes, differed, .. } = self;
        let (gave, saved) = match mode {
            DownstreamCacheMode::On => ("answered from memory", "saved"),
            _ => ("could be answered from memory", "would be saved"),
        };
        writeln!(
            f,
            "  {hits} calls of {} ({}) {gave}, {} ms {saved}; {entries} answers kept, {bytes} bytes",
            hits + misses,
            percent(*hits, hits + misses),
            saved_ns / 1_000_000,
        )?;
        for (rule, found) in &self.by_rule {
            let all = found.hits + found.misses;
            writeln!(f, "    {}: {} of {all} calls", rule.escape_debug(), percent(found.hits, all))?;
        }
        if *mode == DownstreamCacheMode::Observe {
            writeln!(f, "    {differed} times the store said something else: what is written elsewhere is seen after ttl")?;
        }
        self.refused.iter().try_for_each(|(why, count)| writeln!(f, "    {count} not: {why}"))
    }
}

fn percent(part: u64, all: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "a share is shown")]
    let share = part as f64 / all.max(1) as f64 * 100.0;
    format!("{share:.1} %")
}
