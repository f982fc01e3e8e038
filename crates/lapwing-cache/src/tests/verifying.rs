//! Answers that are given again are compared with what the server says, wherever they came from.

use http::Request;

use super::*;
use crate::asking::Looked;
use crate::cache::QuestionContext;
use crate::caching::Caching;
use crate::counts::CacheEvent;
use crate::storable::AnswerParts;
use crate::trust::CacheSeries;
use lapwing_ledger::LabelTable;
use lapwing_protocol::request_match::KnownRequest;
use lapwing_settings::{ConfigHandle, LeverSwitch};

/// One question and one model.
struct Asked {
    caching: Caching,
    series: CacheSeries,
}

impl Asked {
    fn new(config: serde_json::Value) -> Self {
        let caching = Caching::new([1; 32], || 0, ConfigHandle::fixed(serde_json::from_value(config).unwrap()));
        let labels = LabelTable::with_idle(4, u64::MAX);
        Self { caching, series: CacheSeries { route: labels.intern("r"), model: labels.intern("m") } }
    }

    /// Asks at this second. Whether the server was asked, which says `says` after half a second.
    fn ask(&self, second: u64, says: &'static str) -> bool {
        let cache = self.caching.in_force(&LeverSwitch::default()).load();
        let request = Request::post("/v2/models/m/infer").header("content-type", "application/json").body(()).unwrap();
        let body = [Bytes::from_static(br#"{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}"#)];
        let (asked, series) = (at(second), self.series);
        let context = QuestionContext { known: KnownRequest::default(), pool: "", series, identity: None, asked };
        let Looked::Asked(asking) = cache.look(cache.question(&request, &body, context).unwrap(), asked) else { return false };
        let (headers, body) = (HeaderMap::new(), [Bytes::from_static(says.as_bytes())]);
        let parts = AnswerParts { status: StatusCode::OK, headers: &headers, body: &body, trailers: None, is_complete: true };
        asking.answered(parts, asked.plus(500_000_000));
        true
    }

    fn count(&self, event: CacheEvent) -> u64 {
        self.caching.plane().state().counts.of(event)
    }
}

#[test]
fn what_is_given_is_what_is_compared_though_nobody_here_asked_for_it() {
    let asked = Asked::new(serde_json::json!({"mode": "on", "proof": 0, "verify": "100%"}));
    assert!(asked.ask(1, "[1]"));
    // as of an answer that another process was told, or of one among too many questions since
    asked.caching.plane().seen.clear();
    assert!(asked.ask(2, "[2]"), "all are verified");
    assert_eq!((asked.count(CacheEvent::Verified), asked.count(CacheEvent::Different)), (1, 1));
    assert!(asked.ask(3, "[2]") && asked.ask(4, "[2]"), "it is asked in all cases");
    assert_eq!(asked.count(CacheEvent::Refused), 2);
}

#[test]
fn it_is_known_what_the_server_takes_once_something_was_compared() {
    let asked = Asked::new(serde_json::json!({"mode": "on", "proof": 2, "verify": "0%"}));
    let takes = || asked.caching.plane().trust.service_ns(asked.series);
    assert!(asked.ask(1, "[1]"));
    assert_eq!(takes(), None);
    assert!(asked.ask(2, "[1]") && asked.ask(3, "[1]") && !asked.ask(4, "[1]"));
    assert_eq!(takes(), Some(500_000_000));
}
