//! When and how the bytes of a request came: over HTTP/1.1 by the reads of its connection, over HTTP/2, where requests share one, by the clock.
//! What takes no time, such as a body apart from its head, is an annotation.

use std::sync::atomic::Ordering::Relaxed;

use super::request::InFlight;
use crate::connection::{BodyArrival, ConnectionStamps};
use lapwing_ledger::{Annotation, Stamp};
use lapwing_metrics::Counter;

impl<M: ConnectionStamps> InFlight<M> {
    /// `n` bytes of the request body were read. Returns when.
    pub(crate) fn on_request_bytes(&self, n: usize) -> Stamp {
        let read = self.request_read();
        self.stamps.on_request_bytes(n, read);
        read
    }

    /// The request body was read to its end, with its last bytes `at`; `None`: its end came alone, now.
    pub(crate) fn on_request_end(&self, at: Option<Stamp>) {
        self.stamps.on_request_end(at.unwrap_or_else(|| self.request_read()));
        self.meter.on_message_read();
    }

    /// When what was just given of the request was read.
    fn request_read(&self) -> Stamp {
        let read = if self.is_multiplexed { None } else { self.meter.last_read() };
        read.unwrap_or_else(Stamp::now)
    }
}

impl InFlight {
    /// The answer says that the client's connection ends after it.
    pub(crate) fn close_client(&self) {
        self.client.close();
        if self.is_multiplexed {
            self.meter.has_failed.store(true, Relaxed);
        }
    }

    /// What was left of the request after its answer was read and thrown away.
    pub(crate) fn on_rest_drained(&self) {
        // the next request's head may have been read meanwhile
        if !self.closed.load(Relaxed) || self.meter.open.load(Relaxed) == 0 {
            self.on_request_end(None);
        }
    }

    /// Notes what was seen of the request.
    pub(crate) fn annotate(&self, annotation: Annotation) {
        self.write_ledger(|ledger| ledger.circumstances.annotations.add(annotation));
    }

    /// Hyper was given bytes of the response at `handed` and had not written all of them at `now` (HTTP/2). Notes it if they waited for
    /// the client's window rather than for its socket.
    pub(crate) fn note_flow_control(&self, handed: Stamp, now: Stamp) {
        if self.meter.was_quiet(handed, now) {
            self.annotate(Annotation::FlowControl);
        }
    }

    /// The body of the request came in this way (HTTP/1.1).
    pub(crate) fn on_request_body(&self, arrival: BodyArrival) {
        let BodyArrival::Apart { is_acknowledged } = arrival else { return };
        let is_by_agreement = self.write_ledger(|ledger| {
            let annotations = &mut ledger.circumstances.annotations;
            // who asks for "100 Continue" sends the body later on purpose, and our answer acknowledges the head
            let is_by_agreement = annotations.has(Annotation::ExpectContinue);
            if !is_by_agreement {
                annotations.add(Annotation::SplitRequest);
            }
            is_by_agreement
        });
        if is_acknowledged && is_by_agreement != Some(true) {
            self.context.counters.bump(Counter::QuickAcksClient);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::fixtures;
    use lapwing_ledger::Ledger;

    fn names(ledger: &Ledger) -> Vec<&'static str> {
        ledger.circumstances.annotations.iter().map(Annotation::name).collect()
    }

    #[test]
    fn the_first_request_of_a_connection_is_new_and_counts_itself() {
        let first = fixtures::in_flight();
        let (context, meter) = (first.context.clone(), first.meter.clone());
        assert_eq!(
            first.read_ledger(|ledger| (names(ledger), ledger.circumstances.in_flight)),
            Some((vec!["new_client_connection"], 1))
        );
        let second = InFlight::open(context, meter, Stamp::now(), false);
        assert_eq!(second.read_ledger(|ledger| (names(ledger), ledger.circumstances.in_flight)), Some((vec![], 2)));
    }

    #[test]
    fn a_split_request_is_noted_unless_the_client_waits_for_100_continue() {
        let apart = BodyArrival::Apart { is_acknowledged: true };
        for (expects, arrival, annotation, count) in [
            (false, BodyArrival::WithHead, None, 0),
            (false, BodyArrival::Apart { is_acknowledged: false }, Some("split_request"), 0),
            (false, apart, Some("split_request"), 1),
            (true, apart, Some("expect_continue"), 0),
        ] {
            let in_flight = fixtures::in_flight();
            if expects {
                in_flight.annotate(Annotation::ExpectContinue);
            }
            in_flight.on_request_body(arrival);
            let noted = in_flight.read_ledger(names).unwrap();
            assert_eq!(noted.first().copied().filter(|name| *name != "new_client_connection"), annotation);
            assert_eq!(in_flight.context.counters.get(Counter::QuickAcksClient), count);
        }
    }
}
