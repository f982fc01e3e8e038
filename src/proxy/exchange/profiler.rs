//! The observer of the shipped binary: names the series, reads in-band reports, and puts closed ledgers into a bounded queue.
//! The request path never waits for the queue and never wakes its reader, which polls it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use http::{HeaderMap, Method};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHasher};

use super::context::Observer;
use crate::ledger::{LabelId, Ledger};
use crate::metrics::{Counter, Counters, Labels};
use crate::protocol::{DetectedProtocol, ExchangeReader, Protocols, fold_route};

/// How many distinct paths are cached with their route; others are folded each time.
const MAX_PATHS: usize = 4096;
/// The longest path that is cached, in bytes.
const MAX_PATH_BYTES: usize = 256;
/// The model label of requests that name no model.
const NO_MODEL: &str = "";

/// Reads reports from a response's fields (`true`: trailers) into the ledger.
pub type ReportReader = dyn Fn(&HeaderMap, bool, &mut Ledger) + Send + Sync;

/// Observes the traffic for the aggregator.
pub struct Profiler {
    queue: Arc<ArrayQueue<Ledger>>,
    counters: Arc<Counters>,
    labels: Arc<Labels>,
    upstream: LabelId,
    protocols: Arc<Protocols>,
    reports: Box<ReportReader>,
    paths: RwLock<FxHashMap<u64, CachedPath>>,
}

/// What all requests to a path have in common.
struct CachedPath {
    method: Method,
    path: Box<str>,
    route: LabelId,
    model: LabelId,
    protocol: DetectedProtocol,
}

impl Profiler {
    /// Puts closed ledgers into `queue`; reads bodies with `protocols` and in-band reports with `reports`.
    #[must_use]
    pub fn new(
        queue: Arc<ArrayQueue<Ledger>>,
        counters: Arc<Counters>,
        labels: Arc<Labels>,
        upstream: &str,
        protocols: Arc<Protocols>,
        reports: Box<ReportReader>,
    ) -> Self {
        let upstream = labels.upstreams.intern(upstream);
        Self { queue, counters, labels, upstream, protocols, reports, paths: RwLock::default() }
    }

    /// Names the series by the path, and opens a reader for the protocol that the path speaks.
    fn open(&self, method: &Method, path: &str, headers: &HeaderMap, ledger: &mut Ledger) -> Option<ExchangeReader> {
        let mut hasher = FxHasher::default();
        (method, path).hash(&mut hasher);
        let key = hasher.finish();
        let named = |route: LabelId, model: LabelId, protocol: &DetectedProtocol, ledger: &mut Ledger| {
            (ledger.series.route, ledger.series.model) = (route, model);
            self.protocols.open(protocol, headers)
        };
        let has_room = {
            let paths = self.paths.read();
            if let Some(known) = paths.get(&key)
                && known.method == *method
                && &*known.path == path
            {
                return named(known.route, known.model, &known.protocol, ledger);
            }
            path.len() <= MAX_PATH_BYTES && paths.len() < MAX_PATHS
        };
        let folded = fold_route(method.as_str(), path);
        let route = self.labels.routes.intern(&folded.name);
        let model = self.labels.models.intern(folded.model.unwrap_or(NO_MODEL));
        let protocol = self.protocols.detect(method, path);
        let reader = named(route, model, &protocol, ledger);
        if has_room {
            let known = CachedPath { method: method.clone(), path: path.into(), route, model, protocol };
            self.paths.write().insert(key, known);
        }
        reader
    }
}

impl Observer for Profiler {
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, ledger: &mut Ledger) -> Option<ExchangeReader> {
        ledger.series.upstream = self.upstream;
        self.open(method, path, headers, ledger)
    }

    fn model(&self, name: &str, ledger: &mut Ledger) {
        // clients must not fill the table with arbitrary names: a name is added only if the upstream accepted it
        let is_answered = (200..300).contains(&ledger.status);
        let known = if is_answered { Some(self.labels.models.intern(name)) } else { self.labels.models.find(name) };
        ledger.series.model = known.unwrap_or(ledger.series.model);
    }

    fn response(&self, fields: &HeaderMap, trailing: bool, ledger: &mut Ledger) {
        (self.reports)(fields, trailing, ledger);
    }

    fn closed(&self, mut ledger: Ledger) {
        if ledger.series.upstream == LabelId::OTHER {
            // the request was refused before it was classified
            ledger.series.upstream = self.upstream;
            ledger.series.model = self.labels.models.intern(NO_MODEL);
        }
        if self.queue.push(ledger).is_err() {
            self.counters.bump(Counter::DroppedChannelFull);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Stamp;

    #[test]
    fn a_full_queue_costs_the_record_and_counts_it() {
        let counters = Arc::new(Counters::default());
        let queue = Arc::new(ArrayQueue::new(1));
        let labels = Arc::new(Labels::new(8, 8, 8));
        let profiler =
            Profiler::new(queue.clone(), counters.clone(), labels.clone(), "up", Arc::default(), Box::new(|_, _, _| ()));
        for _ in 0..3 {
            let mut ledger = Ledger::open(Stamp::now(), 0);
            profiler.request(&Method::POST, "/v2/models/m/infer", &HeaderMap::new(), &mut ledger);
            profiler.closed(ledger);
        }
        assert_eq!((queue.len(), counters.get(Counter::DroppedChannelFull)), (1, 2));
        let series = queue.pop().unwrap().series;
        assert_eq!(&*labels.routes.text(series.route), "POST /v2/models/{model}/infer");
        assert_eq!(&*labels.models.text(series.model), "m");
        assert_eq!(&*labels.upstreams.text(series.upstream), "up");
    }

    #[test]
    fn names_in_bodies_that_nobody_answered_to_take_no_room() {
        let labels = Arc::new(Labels::new(8, 4, 8));
        let queue = Arc::new(ArrayQueue::new(1));
        let profiler = Profiler::new(queue, Arc::default(), labels.clone(), "up", Arc::default(), Box::new(|_, _, _| ()));
        let named = |name: &str, status: u16| {
            let mut ledger = Ledger::open(Stamp::now(), 0);
            profiler.request(&Method::POST, "/v1/chat/completions", &HeaderMap::new(), &mut ledger);
            ledger.status = status;
            profiler.model(name, &mut ledger);
            labels.models.text(ledger.series.model).to_string()
        };
        for n in 0..20 {
            assert_eq!(named(&format!("none-{n}"), 404), NO_MODEL);
        }
        assert_eq!(named("real", 503), NO_MODEL, "not known yet");
        assert_eq!(named("real", 200), "real");
        assert_eq!(named("real", 404), "real");
        assert_eq!(labels.models.fill(), (2, 0), "{NO_MODEL:?} and real");
    }
}
