//! What is seen of a request on its way that takes no time: how its bytes came, and what they waited for.

use super::request::InFlight;
use crate::connection::BodyArrival;
use lapwing_ledger::{Annotation, Stamp};
use lapwing_metrics::Counter;

impl InFlight {
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
