//! What a running Lapwing says of its cache and of its upstreams: the parts of `/cache` and `/dispatch` that a warm-up reads.

use serde::{Deserialize, Serialize};

use super::error::WarmError;
use lapwing_settings::Share;

/// Where the state of the cache is.
pub(crate) const CACHE: &str = "/cache?format=json";
/// Where it is said what the upstreams work on.
pub(crate) const DISPATCH: &str = "/dispatch?format=json";

/// The cache.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CacheStanding {
    pub(crate) mode: String,
    pub(crate) entries: u64,
    pub(crate) stored: u64,
    pub(crate) proof: u64,
    pub(crate) ttl_ns: u64,
    pub(crate) scope: String,
    pub(crate) series: Vec<SeriesStanding>,
}

/// Whether answers of a route and model are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeriesStanding {
    pub(crate) route: String,
    pub(crate) model: String,
    /// `unproven`, `proven` or `refused`.
    pub(crate) state: String,
    pub(crate) compared: u64,
    /// How many must still be the same.
    pub(crate) needed: u64,
}

impl CacheStanding {
    /// What `GET /cache` said.
    ///
    /// # Errors
    ///
    /// If nothing is kept there.
    pub(crate) fn read(answer: &[u8]) -> Result<Self, WarmError> {
        let standing: Option<Self> = serde_json::from_slice(answer)
            .map_err(|error| WarmError::Unavailable(format!("/cache: {error}: is it a Lapwing of this version?")))?;
        match standing {
            None => Err(WarmError::Off("cache.mode is off")),
            Some(standing) if standing.mode != "on" => Err(WarmError::Off("cache.mode is observe")),
            Some(standing) => Ok(standing),
        }
    }

    /// The state of the series of which answers were compared since `before`: the one that is proven last, if there are several.
    pub(crate) fn state_since(&self, before: &Self) -> Option<&str> {
        let compared = |one: &SeriesStanding| {
            let known = before.series.iter().find(|known| (&known.route, &known.model) == (&one.route, &one.model));
            known.map_or(0, |known| known.compared)
        };
        let mut changed = self.series.iter().filter(|one| one.compared > compared(one)).map(|one| &*one.state);
        let first = changed.next()?;
        Some(if first == "unproven" { first } else { changed.find(|state| *state == "unproven").unwrap_or(first) })
    }
}

/// The queue in front of the upstreams.
#[derive(Debug, Deserialize)]
struct DispatchStanding {
    waiting: u64,
    upstreams: Vec<UpstreamStanding>,
}

#[derive(Debug, Deserialize)]
struct UpstreamStanding {
    slots: Option<u32>,
    running: u32,
}

/// The share of the upstreams' slots that work for somebody else, by what `GET /dispatch` said, while `own` requests of the warm-up are
/// there; all of them while a request waits. `None` where it is not known how many slots there are.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "counts of requests")]
pub(crate) fn utilisation(answer: &[u8], own: usize) -> Option<f64> {
    let DispatchStanding { waiting, upstreams } = serde_json::from_slice::<Option<DispatchStanding>>(answer).ok()??;
    let slots = upstreams.iter().map(|one| one.slots).sum::<Option<u32>>().filter(|slots| *slots > 0)?;
    if waiting > 0 {
        return Some(1.0);
    }
    let running: u64 = upstreams.iter().map(|one| u64::from(one.running.min(one.slots.unwrap_or(0)))).sum();
    Some(running.saturating_sub(own as u64) as f64 / f64::from(slots))
}

/// Latest readings of the utilisation: one moment says little of a server with few slots.
#[derive(Debug, Default)]
pub(crate) struct UtilisationReadings {
    latest: [f64; 4],
    count: usize,
}

impl UtilisationReadings {
    pub(crate) fn add(&mut self, utilisation: f64) {
        self.latest[self.count % 4] = utilisation;
        self.count += 1;
    }

    /// Whether their mean is above.
    #[allow(clippy::cast_precision_loss, reason = "there are at most four")]
    pub(crate) fn are_above(&self, most: Share) -> bool {
        let known = self.count.min(4);
        known > 0 && self.latest[..known].iter().sum::<f64>() / known as f64 > most.get()
    }
}
