//! Heads that hyper refuses by itself: they never reach the stack, and have an account all the same.

use std::sync::Arc;

use super::context::{RequestContext, WorkerParts};
use super::request::InFlight;
use crate::connection::{OnRefusal, SocketMeter};
use crate::error::response::refusal;
use lapwing_ledger::{Outcome, Stamp};

/// Counts heads that hyper refuses: they never reach the stack, and are rejected requests.
#[derive(Debug)]
pub(crate) struct CountRefusals {
    pub(crate) context: Arc<RequestContext>,
    pub(crate) worker: Arc<WorkerParts>,
}

impl CountRefusals {
    /// The account of a head that was refused with `status`, and `began` then.
    fn open(&self, status: u16, meter: &Arc<SocketMeter>, began: Stamp, is_multiplexed: bool) -> Arc<InFlight> {
        let in_flight = InFlight::open(self.context.clone(), self.worker.clone(), meter.clone(), began, is_multiplexed);
        in_flight.write_ledger(|ledger| {
            ledger.status = status;
            ledger.outcome = Outcome::Rejected;
        });
        in_flight
    }
}

impl OnRefusal for CountRefusals {
    fn on_refusal(&self, status: u16, meter: &Arc<SocketMeter>) -> Vec<u8> {
        self.open(status, meter, meter.head_began(), false).finish();
        refusal(status)
    }

    fn on_refused_stream(&self, status: u16, meter: &Arc<SocketMeter>) {
        let now = Stamp::now();
        self.open(status, meter, meter.last_read().unwrap_or(now), true).close(now);
    }
}
