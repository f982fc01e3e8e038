//! What is noted beside a request's time: how many others were in flight when it came, and how its bytes came.

use http::{HeaderMap, header};

use lapwing_ledger::{Annotation, Ledger};
use lapwing_metrics::{Counter, Counters};

/// A request came, the first of its connection or not: counts it in, and notes how many are in flight now.
pub(crate) fn note_arrival(counters: &Counters, is_first: bool, ledger: &mut Ledger) {
    let seen = &mut ledger.circumstances;
    seen.in_flight = u32::try_from(counters.raise(Counter::InFlight)).unwrap_or(u32::MAX);
    if is_first {
        seen.annotations.add(Annotation::NewClientConnection);
    }
}

/// Notes what the request's head says of its body.
pub(crate) fn note_request_head(headers: &HeaderMap, ledger: &mut Ledger) {
    let annotations = &mut ledger.circumstances.annotations;
    // to pass over a few names costs less than two look-ups
    for (name, value) in headers {
        if *name == header::EXPECT {
            annotations.add(Annotation::ExpectContinue);
        } else if *name == header::CONTENT_ENCODING && !value.as_bytes().eq_ignore_ascii_case(b"identity") {
            annotations.add(Annotation::CompressedRequest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::Stamp;

    fn names(ledger: &Ledger) -> Vec<&'static str> {
        ledger.circumstances.annotations.iter().map(Annotation::name).collect()
    }

    #[test]
    fn a_head_tells_of_its_body() {
        for (field, expected) in [
            (("expect", "100-continue"), &["expect_continue"][..]),
            (("content-encoding", "gzip"), &["compressed_request"]),
            (("content-encoding", "Identity"), &[]),
            (("accept-encoding", "gzip"), &[]),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(field.0, field.1.parse().unwrap());
            let mut ledger = Ledger::open(Stamp::now(), 0);
            note_request_head(&headers, &mut ledger);
            assert_eq!(names(&ledger), expected, "{field:?}");
        }
    }
}
