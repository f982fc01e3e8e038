//! What model servers report about themselves outside of bodies: header and trailer fields, and their own kinds of spans.

mod gateway_usage;
pub mod headers;
pub(crate) mod spans;

use std::sync::Arc;

use http::HeaderMap;

use super::cache_hit;
use super::rules::Rules;
use super::server_timing::{self, SERVER_TIMING};
use lapwing_ledger::{Ledger, ReportPlace};
use lapwing_metrics::{Counter, Counters};

/// Reads the fields of a response head (`true`: of its trailers) into its ledger.
pub type HeaderReader = dyn Fn(&HeaderMap, bool, &mut Ledger) + Send + Sync;

/// Creates a reader of all reported fields, with `Server-Timing` mapped by `rules`. It counts values that it cannot read.
#[must_use]
pub fn reader(rules: Arc<Rules>, counters: Arc<Counters>) -> Box<HeaderReader> {
    Box::new(move |headers, trailing, ledger| {
        let place = if trailing { ReportPlace::Trailer } else { ReportPlace::Head };
        if !trailing {
            headers::note_server(headers, ledger);
        }
        let mut malformed = cache_hit::report(headers, rules.cache_hit(), &mut ledger.circumstances);
        let found = ReportingFields::of(headers);
        if found.server_timing {
            malformed += server_timing::report(headers, &rules, place, ledger);
        }
        if found.compute_type {
            malformed += headers::report(headers, place, ledger);
        }
        if found.usage {
            malformed += gateway_usage::report(headers, ledger);
        }
        if malformed > 0 {
            counters.add(Counter::ReportsMalformed, malformed as u64);
        }
    })
}

/// Which fields there are without which nothing is reported.
#[derive(Clone, Copy, Debug, Default)]
struct ReportingFields {
    server_timing: bool,
    compute_type: bool,
    usage: bool,
}

impl ReportingFields {
    /// Most answers have none or one of them, and to pass over a few names costs less than to look each of these up.
    fn of(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for name in headers.keys() {
            match name {
                name if *name == SERVER_TIMING => found.server_timing = true,
                name if *name == headers::COMPUTE_TYPE => found.compute_type = true,
                name if *name == gateway_usage::BEDROCK_INPUT || *name == gateway_usage::FIREWORKS_INPUT => found.usage = true,
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;
    use lapwing_ledger::{Server, Stage, Stamp, Unit};

    #[test]
    fn the_reader_counts_what_it_cannot_read_and_knows_heads_from_trailers() {
        let counters = Arc::new(Counters::default());
        let read = reader(Arc::new(Rules::default()), counters.clone());
        let mut ledger = Ledger::open(Stamp::now(), 0);
        let fields = |value: &[u8]| HeaderMap::from_iter([(SERVER_TIMING, http::HeaderValue::from_bytes(value).unwrap())]);
        read(&fields(b"queue;dur=1, forward;dur=-2, \xff\xfe;dur=3"), false, &mut ledger);
        read(&fields(b"forward;dur=2;desc=\"caf\xc3\xa9\""), true, &mut ledger);
        read(&HeaderMap::new(), true, &mut ledger);
        let own = (http::header::SERVER, http::HeaderValue::from_static("BentoML Service/summariser"));
        read(&HeaderMap::from_iter([own]), false, &mut ledger);
        let found: Vec<_> = ledger.reports.iter().map(|r| (r.stage, r.duration_ns, r.place == ReportPlace::Trailer)).collect();
        assert_eq!(found, [(Stage::Queue, 1_000_000, false), (Stage::Forward, 2_000_000, true)]);
        assert_eq!(ledger.server, Some(Server::BentoMl));
        assert_eq!(counters.get(Counter::ReportsMalformed), 2);
    }

    #[test]
    fn the_reader_finds_the_fields_of_each_adapter() {
        let read = reader(Arc::new(Rules::default()), Arc::default());
        let found = |fields: &[(&'static str, &'static str)]| {
            let fields =
                fields.iter().map(|(name, value)| (HeaderName::from_static(name), http::HeaderValue::from_static(value)));
            let mut ledger = Ledger { status: 200, ..Ledger::open(Stamp::now(), 0) };
            read(&HeaderMap::from_iter(fields), false, &mut ledger);
            (ledger.reports.len(), ledger.work.get(Unit::InputToken).map(|(tokens, _)| tokens))
        };
        assert_eq!(found(&[("server-timing", "queue;dur=1")]), (1, None));
        assert_eq!(found(&[("x-compute-type", "cpu"), ("x-tokenization-time", "1"), ("x-inference-time", "3")]), (2, None));
        assert_eq!(found(&[("x-amzn-bedrock-input-token-count", "7")]), (0, Some(7)));
        assert_eq!(found(&[("fireworks-prompt-tokens", "9")]), (0, Some(9)));
        assert_eq!(found(&[("x-inference-time", "3")]), (0, None), "of no known server");
    }
}
