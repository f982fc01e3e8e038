//! What caches of other sizes, whose answers are given for other times, would have brought, and which of them is enough.

use schemars::JsonSchema;
use serde::Serialize;

use lapwing_cache::{CacheState, GhostCell};
use lapwing_diagnosis::CacheWorth;

/// A cache is enough that saves this share of what the best one would.
const ENOUGH: f64 = 0.9;

/// What caches would have brought.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GhostView {
    /// The requests that passed.
    pub(crate) requests: u64,
    /// What they took at the upstream.
    pub(crate) service_ns: u64,
    /// From the first of them to the last.
    pub(crate) observed_ns: u64,
    /// By size and time to live, the smallest first.
    pub(crate) cells: Vec<GhostCellView>,
    /// The smallest that is enough; absent if none would have answered anything.
    pub(crate) enough: Option<EnoughView>,
}

/// What a cache would have brought.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GhostCellView {
    pub(crate) max_bytes: u64,
    pub(crate) ttl_s: u64,
    /// The share of requests that it would have answered.
    pub(crate) hit_rate: f64,
    /// What those took at the upstream, of an hour.
    pub(crate) saved_ns_an_hour: f64,
}

/// The smallest cache that saves nine tenths of what the largest would.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EnoughView {
    pub(crate) max_bytes: u64,
    pub(crate) ttl_s: u64,
    /// What it would bring, and how sure it is that it may.
    pub(crate) sentence: String,
}

/// What a cell comes to, with how often the upstream was seen to give the same answer.
fn worth_of(cell: &GhostCell, state: &CacheState) -> CacheWorth {
    let (compared, same) = tries(state);
    CacheWorth {
        max_bytes: cell.max_bytes,
        ttl_s: cell.ttl_s,
        requests: cell.saving.requests,
        covered_ns: state.observed_ns,
        hit_rate: cell.saving.hit_rate,
        saved_ns: cell.saving.saved_ns,
        compared,
        same,
    }
}

/// The smallest cache that is enough: the fewest steps up from the smallest of both, of several the one with the shorter time.
fn enough(cells: &[GhostCell]) -> Option<&GhostCell> {
    let best = cells.iter().map(|cell| cell.saving.saved_ns).fold(0.0, f64::max);
    let smaller = |of: fn(&GhostCell) -> u64, than: &GhostCell| {
        let mut values: Vec<u64> = cells.iter().map(of).filter(|value| *value < of(than)).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let steps = |cell: &&GhostCell| {
        let (size, ttl) = (smaller(|cell| cell.max_bytes, cell), smaller(|cell| cell.ttl_s, cell));
        (size + ttl, ttl)
    };
    cells.iter().filter(|cell| best > 0.0 && cell.saving.saved_ns >= ENOUGH * best).min_by_key(steps)
}

/// What the smallest cache that is enough would bring.
pub(crate) fn worth(state: &CacheState) -> Option<CacheWorth> {
    enough(&state.ghost).map(|cell| worth_of(cell, state))
}

impl GhostView {
    /// `None` until a request has passed.
    pub(crate) fn of(state: &CacheState) -> Option<Self> {
        let first = state.ghost.first()?;
        let cell = |cell: &GhostCell| GhostCellView {
            max_bytes: cell.max_bytes,
            ttl_s: cell.ttl_s,
            hit_rate: cell.saving.hit_rate,
            saved_ns_an_hour: worth_of(cell, state).saved_ns_an_hour(),
        };
        let enough =
            worth(state).map(|worth| EnoughView { max_bytes: worth.max_bytes, ttl_s: worth.ttl_s, sentence: worth.sentence() });
        Some(Self {
            requests: first.saving.requests,
            service_ns: first.saving.service_ns,
            observed_ns: state.observed_ns,
            cells: state.ghost.iter().map(cell).collect(),
            enough,
        })
    }
}

/// How many the upstream compared, and found the same, of all series.
fn tries(state: &CacheState) -> (u64, u64) {
    let compared = state.series.iter().map(|(_, trust)| trust.seen.compared());
    compared.fold((0, 0), |(all, same), (compared, different)| (all + compared, same + (compared - different)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_cache::GhostSaving;

    /// Caches of 1, 2 and 4 bytes, whose answers are given for 1 and 10 seconds.
    fn chosen(saved: [[f64; 2]; 3]) -> Option<(u64, u64)> {
        let cell = |max_bytes, ttl_s, saved_ns| GhostCell {
            max_bytes,
            ttl_s,
            saving: GhostSaving { saved_ns, ..GhostSaving::default() },
        };
        let cells: Vec<_> = [1, 2, 4]
            .into_iter()
            .zip(saved)
            .flat_map(|(size, [short, long])| [cell(size, 1, short), cell(size, 10, long)])
            .collect();
        enough(&cells).map(|cell| (cell.max_bytes, cell.ttl_s))
    }

    #[test]
    fn the_smallest_is_enough_that_saves_nine_tenths() {
        assert_eq!(chosen([[10.0, 20.0], [50.0, 91.0], [60.0, 100.0]]), Some((2, 10)));
        assert_eq!(chosen([[10.0, 20.0], [50.0, 89.0], [60.0, 100.0]]), Some((4, 10)));
        assert_eq!(chosen([[95.0, 96.0], [97.0, 98.0], [99.0, 100.0]]), Some((1, 1)));
        assert_eq!(chosen([[0.0, 95.0], [95.0, 95.0], [95.0, 95.0]]), Some((2, 1)), "of equals the shorter time");
        assert_eq!(chosen([[0.0; 2]; 3]), None);
    }
}
