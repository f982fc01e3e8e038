//! When the next request of a warm-up may be sent: so many a second, and while the upstream has little else to do.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::error::WarmError;
use super::standing::{DISPATCH, UtilisationReadings, utilisation};
use lapwing_ledger::Stamp;
use lapwing_settings::Share;

/// How many requests are in flight at most where there is a rate.
const MOST_IN_FLIGHT: usize = 64;
/// How long a reading of the utilisation holds, in nanoseconds, and how long is waited between two while it is too high.
const READING_NS: u64 = 1_000_000_000;
const PAUSE: Duration = Duration::from_millis(250);
/// The longest rest after an answer.
const MOST_REST_NS: u64 = 10_000_000_000;

/// How fast a warm-up goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WarmPace {
    /// So many requests a second; `None`: one at a time.
    pub rate: Option<f64>,
    /// Nothing is sent while other requests use a larger share of the upstreams' slots.
    pub max_utilisation: Option<Share>,
}

/// Lets one request after the other go.
pub(crate) struct WarmPacing<'a, A> {
    pace: WarmPace,
    asks: &'a A,
    /// When the next one may go by the rate.
    due: Stamp,
    readings: UtilisationReadings,
    read_at: Option<Stamp>,
    /// Whether nobody knows the utilisation now, and whether that was so at any time.
    is_unknown: bool,
    was_unknown: bool,
    /// What the last answer took.
    last_ns: u64,
    pub(crate) paused_ns: u64,
}

impl<'a, A: AsyncFn(&'static str) -> Result<Bytes, String>> WarmPacing<'a, A> {
    pub(crate) fn new(pace: WarmPace, asks: &'a A) -> Self {
        let readings = UtilisationReadings::default();
        Self {
            pace,
            asks,
            due: Stamp::now(),
            readings,
            read_at: None,
            is_unknown: false,
            was_unknown: false,
            last_ns: 0,
            paused_ns: 0,
        }
    }

    /// How many requests may be in flight at once.
    pub(crate) const fn most_in_flight(&self) -> usize {
        if self.pace.rate.is_none() || self.is_unknown { 1 } else { MOST_IN_FLIGHT }
    }

    /// Whether a utilisation was to be kept that nobody knew.
    pub(crate) const fn was_blind(&self) -> bool {
        self.was_unknown
    }

    /// An answer came after so long.
    pub(crate) const fn answered(&mut self, took_ns: u64) {
        self.last_ns = took_ns;
    }

    /// Waits until the next request may go, while `own` ones are in flight.
    ///
    /// # Errors
    ///
    /// If the running Lapwing does not say how busy its upstreams are.
    pub(crate) async fn turn(&mut self, own: &Cell<usize>) -> Result<(), WarmError> {
        if let Some(rate) = self.pace.rate {
            sleep(Duration::from_nanos(self.due.since(Stamp::now()))).await;
            // who is late does not catch up
            self.due = self.due.max(Stamp::now()).plus(interval_ns(rate));
        }
        let Some(most) = self.pace.max_utilisation else { return Ok(()) };
        let is_stale = self.read_at.is_none_or(|at| Stamp::now().since(at) >= READING_NS);
        if is_stale {
            self.read(own).await?;
            let began = Stamp::now();
            while !self.is_unknown && self.readings.are_above(most) {
                sleep(PAUSE).await;
                self.read(own).await?;
            }
            self.paused_ns += Stamp::now().since(began);
        }
        if self.is_unknown {
            sleep(Duration::from_nanos(self.last_ns.min(MOST_REST_NS))).await;
        }
        Ok(())
    }

    async fn read(&mut self, own: &Cell<usize>) -> Result<(), WarmError> {
        let answer = (self.asks)(DISPATCH).await.map_err(WarmError::Unavailable)?;
        self.read_at = Some(Stamp::now());
        let known = utilisation(&answer, own.get());
        self.is_unknown = known.is_none();
        self.was_unknown |= self.is_unknown;
        known.into_iter().for_each(|utilisation| self.readings.add(utilisation));
        Ok(())
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are bounded on both sides")]
fn interval_ns(rate: f64) -> u64 {
    (1e9 / rate) as u64
}
