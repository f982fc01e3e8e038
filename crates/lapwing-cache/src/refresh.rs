//! Refresh-ahead: an answer that is asked for often, and soon out of date, is asked for anew while it is still given.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::answer::StoredAnswer;
use crate::plane::CachePlane;
use lapwing_ledger::Stamp;
use lapwing_settings::Share;

/// How many answers may be asked for anew at once: more would be in the way of clients.
const MAX_REFRESHES: usize = 2;

/// The right to ask for an answer anew, until it is dropped. There is one at a time for an answer.
#[derive(Debug)]
pub(crate) struct RefreshTicket {
    plane: Arc<CachePlane>,
    answer: Arc<StoredAnswer>,
}

impl RefreshTicket {
    /// Notes that `answer` is given once more. Returns a ticket if it was given before and less than `share` of its time is left, unless
    /// it is asked for already, or too many are.
    pub(crate) fn of(plane: &Arc<CachePlane>, answer: &Arc<StoredAnswer>, share: Share, now: Stamp) -> Option<Self> {
        let fresh_ns = answer.terms().fresh_ns;
        let left_ns = fresh_ns.saturating_sub(answer.kept_ns(now));
        #[allow(clippy::cast_precision_loss, reason = "a share of a time")]
        let is_due = (left_ns as f64) < fresh_ns as f64 * share.get();
        if !answer.was_given.swap(true, Relaxed) || !is_due || answer.is_refreshed.swap(true, Relaxed) {
            return None;
        }
        // from here on, dropping it gives both back
        let ticket = Self { plane: plane.clone(), answer: answer.clone() };
        (plane.refreshing.fetch_add(1, Relaxed) < MAX_REFRESHES).then_some(ticket)
    }
}

impl Drop for RefreshTicket {
    fn drop(&mut self) {
        self.plane.refreshing.fetch_sub(1, Relaxed);
        self.answer.is_refreshed.store(false, Relaxed);
    }
}
