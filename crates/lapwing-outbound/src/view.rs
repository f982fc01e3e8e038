//! What `/downstreams` shows. Durations are nanoseconds; counts are since the start.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cache::{CacheView, StoreCache};
use crate::figures::{Figures, Lasted, NamedCalls, WaitJoin};
use crate::kind::DownstreamKind;
use crate::state::{DownstreamState, Downstreams};
use crate::unread::Unread;
use lapwing_ledger::Stage;
use lapwing_metrics::{Distribution, HistogramScratch};

/// A store or service that the model server calls.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Downstream")]
pub struct DownstreamView {
    name: Arc<str>,
    /// Where its calls go.
    to: String,
    kind: DownstreamKind,
    /// The stage that its calls are.
    stage: Stage,
    connections_open: u64,
    connections: u64,
    /// Connections of the server that were closed because there was none to be had to the store.
    connects_failed: u64,
    /// Bytes to the store.
    bytes_sent: u64,
    bytes_received: u64,
    calls: u64,
    /// Calls that were answered with an error.
    failed: u64,
    /// Calls whose connection ended before they were answered.
    cut: u64,
    /// Keys that reading calls named.
    keys: u64,
    /// Of what was asked for, how much was there.
    hits: u64,
    misses: u64,
    /// What calls took, without those that wait for others (`BLPOP`) or stand in a transaction.
    duration: Distribution,
    /// Calls by name, those that occurred.
    by_name: BTreeMap<&'static str, CallsView>,
    /// The times in which the server waited for an answer, by what became of them.
    waits: BTreeMap<&'static str, WaitsView>,
    /// Connections that were passed on and no longer read, by reason.
    unread: BTreeMap<&'static str, u64>,
    /// Answers that are kept and given again; absent without `cache`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CallsView {
    calls: u64,
    failed: u64,
    cut: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WaitsView {
    count: u64,
    total_ns: u64,
}

impl Downstreams {
    /// What is known of each.
    #[must_use]
    pub fn views(&self) -> Vec<DownstreamView> {
        let mut scratch = HistogramScratch::default();
        self.list.iter().map(|one| one.view(&mut scratch)).collect()
    }
}

impl DownstreamState {
    fn view(&self, scratch: &mut HistogramScratch) -> DownstreamView {
        let figures = self.figures.lock();
        let of =
            |(name, NamedCalls { calls, failed, cut }): (crate::CallName, _)| (name.text(), CallsView { calls, failed, cut });
        let sum = |count: fn(&NamedCalls) -> u64| figures.calls.iter().map(count).sum();
        let Figures { connections_open, connections, connects_failed, bytes_sent, bytes_received, keys, hits, misses, .. } =
            *figures;
        let wait = |(join, Lasted { count, ns }): (WaitJoin, _)| (join.name(), WaitsView { count, total_ns: ns });
        let unread = |(why, count): (Unread, u64)| (why.name(), count);
        DownstreamView {
            name: self.name.clone(),
            to: self.address.clone(),
            kind: self.kind,
            stage: self.stage,
            connections_open,
            connections,
            connects_failed,
            bytes_sent,
            bytes_received,
            calls: sum(|named| named.calls),
            failed: sum(|named| named.failed),
            cut: sum(|named| named.cut),
            keys,
            hits,
            misses,
            duration: figures.durations.distribution(scratch),
            by_name: figures.named().map(of).collect(),
            waits: figures.waits().filter(|(_, lasted)| lasted.count > 0).map(wait).collect(),
            unread: figures.unread().filter(|(_, count)| *count > 0).map(unread).collect(),
            cache: self.cache.as_ref().map(StoreCache::view),
        }
    }
}

impl DownstreamView {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for DownstreamView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, to, calls, failed, cut, keys, hits, misses, duration, .. } = self;
        let place = if **name == **to { String::new() } else { format!(" ({to})") };
        writeln!(f, "{name}{place}: {calls} calls, {failed} failed, {cut} cut off; {keys} keys, {hits} hits, {misses} misses")?;
        writeln!(f, "  p50 {}, p99 {}, longest {}", micros(duration.p50_ns), micros(duration.p99_ns), micros(duration.max_ns))?;
        let all: u64 = self.waits.values().map(|wait| wait.total_ns).sum();
        for (join, wait) in &self.waits {
            #[allow(clippy::cast_precision_loss, reason = "a share is shown")]
            let share = wait.total_ns as f64 / all.max(1) as f64 * 100.0;
            writeln!(f, "  {join}: {} waits, {share:.1} % of the time", wait.count)?;
        }
        self.unread.iter().try_for_each(|(why, count)| writeln!(f, "  {count} connections no longer read: {why}"))?;
        self.cache.as_ref().map_or(Ok(()), |cache| cache.fmt(f))
    }
}

fn micros(ns: u64) -> String {
    format!("{}.{} µs", ns / 1000, ns % 1000 / 100)
}

#[cfg(test)]
impl DownstreamView {
    /// As `/downstreams` shows it.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap()
    }
}
