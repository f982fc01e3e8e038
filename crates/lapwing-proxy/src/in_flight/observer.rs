//! Who observes the traffic, behind a fence: an observer may fail, and a panic there costs the record and never the request. And what else is
//! called when a request's account closes.
//!
//! The observer of the shipped binary is the [`Profiler`]: it names the series, reads in-band reports, and puts closed ledgers into a
//! bounded queue. The request path never waits for the queue and never wakes its reader, which polls it. It looks names up and interns
//! none: the aggregator does, once the answer has proved them.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use http::{HeaderMap, Method};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHasher};

use lapwing_ledger::{LabelId, Ledger, NewNames, label_text};
use lapwing_metrics::{Counter, Counters, Labels};
use lapwing_protocol::{DetectedProtocol, ExchangeReader, Protocols, fold_route};
use lapwing_tower::RecordLedger;

/// How many distinct paths with known names are cached; a full cache starts afresh.
const MAX_PATHS: usize = 4096;
/// The longest path that is cached, in bytes.
const MAX_PATH_BYTES: usize = 256;

/// The longest method that is cached, in bytes: those that HTTP knows fit.
const MAX_METHOD_BYTES: usize = 16;

/// Observes the traffic, and takes the closed ledgers. It is called on the request path: it must be quick, and must not wait.
pub trait Observer: RecordLedger + Send + Sync {
    /// Names route and model of a request by its head. Returns a reader of the bodies if there is anything to read.
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, ledger: &mut Ledger) -> Option<ExchangeReader>;
    /// Returns a reader of an answer of which nothing else is read, that looks for an error; `None` if bodies are not to be read.
    fn error_reader(&self) -> Option<ExchangeReader> {
        None
    }
    /// Reads the upstream's own reports in a response's head, or (`trailing`) in its trailers.
    fn response(&self, fields: &HeaderMap, trailing: bool, ledger: &mut Ledger);
    /// Names the model that the bodies name.
    fn model(&self, name: &str, ledger: &mut Ledger);
}

/// Called once when a request's ledger closes, before it is handed over: its work is known, and its answer has left. It must be quick,
/// must not wait, and must not touch the request in flight, whose lock is held.
pub trait OnClose: Debug + Send {
    /// The ledger closes.
    fn on_close(self: Box<Self>, ledger: &mut Ledger);
}

/// An observer behind a fence.
#[derive(Clone)]
pub(crate) struct FencedObserver {
    observer: Arc<dyn Observer>,
    counters: Arc<Counters>,
}

impl Debug for FencedObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FencedObserver").finish_non_exhaustive()
    }
}

impl FencedObserver {
    /// Panics of `observer` are counted in `counters`.
    pub(crate) const fn new(observer: Arc<dyn Observer>, counters: Arc<Counters>) -> Self {
        Self { observer, counters }
    }

    /// Calls the observer. A panic is caught and counted by `panicked`.
    pub(crate) fn call(&self, panicked: Counter, call: impl FnOnce(&dyn Observer)) {
        if catch_unwind(AssertUnwindSafe(|| call(&*self.observer))).is_err() {
            self.counters.bump(panicked);
        }
    }
}

/// Reads reports from a response's fields (`true`: trailers) into the ledger.
pub type ReportReader = dyn Fn(&HeaderMap, bool, &mut Ledger) + Send + Sync;

/// Observes the traffic for the aggregator.
pub struct Profiler {
    queue: Arc<ArrayQueue<Box<Ledger>>>,
    counters: Arc<Counters>,
    labels: Arc<Labels>,
    upstream: LabelId,
    protocols: Arc<Protocols>,
    reports: Box<ReportReader>,
    paths: RwLock<CachedPaths>,
}

#[derive(Default)]
struct CachedPaths {
    /// How many names had given way when the first path was cached. Once more have, any id may be out of date.
    evicted: u64,
    by_hash: FxHashMap<u64, CachedPath>,
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
    /// Puts closed ledgers into `queue`; reads bodies with `protocols` and in-band reports with `reports`. A request is counted under
    /// `upstream` unless it is placed at one of several.
    #[must_use]
    pub fn new(
        queue: Arc<ArrayQueue<Box<Ledger>>>,
        counters: Arc<Counters>,
        labels: Arc<Labels>,
        upstream: LabelId,
        protocols: Arc<Protocols>,
        reports: Box<ReportReader>,
    ) -> Self {
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
        let evicted = self.labels.evicted();
        {
            let paths = self.paths.read();
            if let Some(known) = paths.by_hash.get(&key)
                && known.method == *method
                && &*known.path == path
                && paths.evicted == evicted
            {
                return named(known.route, known.model, &known.protocol, ledger);
            }
        }
        let folded = fold_route(method.as_str(), path);
        let model_text = folded.model.map(label_text);
        let route = self.labels.routes.find(&folded.name);
        let model = model_text.as_deref().map_or(Some(self.labels.no_model()), |name| self.labels.models.find(name));
        let protocol = self.protocols.detect(method, path);
        let reader = named(route.unwrap_or_default(), model.unwrap_or_default(), &protocol, ledger);
        let (Some(route), Some(model)) = (route, model) else {
            let route = route.is_none().then(|| folded.name.into());
            let model = model_text.filter(|_| model.is_none()).map(Into::into);
            ledger.new_names = Some(Box::new(NewNames { route, model }));
            return reader;
        };
        if path.len() <= MAX_PATH_BYTES && method.as_str().len() <= MAX_METHOD_BYTES {
            let known = CachedPath { method: method.clone(), path: path.into(), route, model, protocol };
            self.paths.write().insert(evicted, key, known);
        }
        reader
    }
}

impl CachedPaths {
    fn insert(&mut self, evicted: u64, key: u64, path: CachedPath) {
        if self.evicted != evicted || self.by_hash.len() >= MAX_PATHS {
            self.by_hash.clear();
            self.evicted = evicted;
        }
        self.by_hash.insert(key, path);
    }
}

impl Observer for Profiler {
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, ledger: &mut Ledger) -> Option<ExchangeReader> {
        ledger.series.upstream = self.upstream;
        self.open(method, path, headers, ledger)
    }

    fn error_reader(&self) -> Option<ExchangeReader> {
        self.protocols.open_for_errors()
    }

    fn model(&self, name: &str, ledger: &mut Ledger) {
        let known = self.labels.models.find(name);
        ledger.series.model = known.unwrap_or_default();
        match known {
            Some(_) => ledger.new_names.iter_mut().for_each(|names| names.model = None),
            None => ledger.name_new_model(name),
        }
    }

    fn response(&self, fields: &HeaderMap, trailing: bool, ledger: &mut Ledger) {
        (self.reports)(fields, trailing, ledger);
    }
}

impl RecordLedger for Profiler {
    fn record(&self, mut ledger: Box<Ledger>) {
        if ledger.series.upstream == LabelId::OTHER {
            // the request was refused before it was classified
            ledger.series.upstream = self.upstream;
            ledger.series.model = self.labels.no_model();
        }
        if self.queue.push(ledger).is_err() {
            self.counters.bump(Counter::DroppedChannelFull);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{NameProof, Stamp, UpstreamWindow};

    #[test]
    fn a_full_queue_costs_the_record_and_counts_it() {
        let counters = Arc::new(Counters::default());
        let queue = Arc::new(ArrayQueue::new(1));
        let labels = Arc::new(Labels::new(8, 8, 8));
        let profiler = Profiler::new(
            queue.clone(),
            counters.clone(),
            labels.clone(),
            labels.upstreams.intern("up"),
            Arc::default(),
            Box::new(|_, _, _| ()),
        );
        for _ in 0..3 {
            let mut ledger = Box::new(Ledger::open(Stamp::now(), 0));
            profiler.request(&Method::POST, "/v2/models/m/infer", &HeaderMap::new(), &mut ledger);
            profiler.record(ledger);
        }
        assert_eq!((queue.len(), counters.get(Counter::DroppedChannelFull)), (1, 2));
        let mut ledger = queue.pop().unwrap();
        (ledger.window, ledger.name_proof) = (Some(UpstreamWindow::default()), NameProof::Proven);
        labels.resolve_names(&mut ledger, Stamp::now());
        let series = ledger.series;
        assert_eq!(&*labels.routes.text(series.route), "POST /v2/models/{model}/infer");
        assert_eq!(&*labels.models.text(series.model), "m");
        assert_eq!(&*labels.upstreams.text(series.upstream), "up");
    }

    /// A profiler, and a function that lets it observe one exchange, which the upstream answers, and names that.
    fn named(profiler: &Profiler, path: &str, body: Option<&str>, status: u16) -> (String, String) {
        let mut ledger = Ledger::open(Stamp::now(), 0);
        profiler.request(&Method::POST, path, &HeaderMap::new(), &mut ledger);
        (ledger.status, ledger.window) = (status, Some(UpstreamWindow::default()));
        ledger.name_proof = NameProof::of_status(status);
        body.into_iter().for_each(|name| profiler.model(name, &mut ledger));
        profiler.labels.resolve_names(&mut ledger, Stamp::now());
        let Labels { routes, models, .. } = &*profiler.labels;
        (routes.text(ledger.series.route).to_string(), models.text(ledger.series.model).to_string())
    }

    fn profiler(labels: Labels) -> Profiler {
        let queue = Arc::new(ArrayQueue::new(1));
        let upstream = labels.upstreams.intern("up");
        Profiler::new(queue, Arc::default(), Arc::new(labels), upstream, Arc::default(), Box::new(|_, _, _| ()))
    }

    #[test]
    fn names_in_bodies_that_nobody_answered_to_take_no_room() {
        let profiler = profiler(Labels::new(8, 4, 8));
        let chat = |name: &str, status| named(&profiler, "/v1/chat/completions", Some(name), status).1;
        for n in 0..20 {
            assert_eq!(chat(&format!("none-{n}"), 404), "other");
        }
        assert_eq!(chat("real", 400), "other", "not known yet");
        assert_eq!(chat("real", 200), "real");
        assert_eq!(chat("real", 404), "real");
        assert_eq!(profiler.labels.models.fill(), (2, 0), "no model, and real");
    }

    #[test]
    fn paths_are_cached_once_their_names_are_known_and_until_one_gives_way() {
        let config =
            lapwing_metrics::Config { max_models: 2, idle_after: lapwing_settings::Period::from_secs(0), ..Default::default() };
        let profiler = profiler(Labels::bounded_by(&config, 1));
        let cached = || profiler.paths.read().by_hash.len();
        let infer = |model: &str, status| named(&profiler, &format!("/v2/models/{model}/infer"), None, status).1;
        assert_eq!((infer("none", 404), cached()), ("other".into(), 0));
        assert_eq!((infer("a", 200), cached()), ("a".into(), 0));
        assert_eq!((infer("a", 404), cached()), ("a".into(), 1));
        assert_eq!(infer("b", 200), "b", "a gives way");
        assert_eq!(infer("a", 404), "other");
        assert_eq!((infer("b", 404), cached()), ("b".into(), 1));
    }

    #[test]
    fn a_full_cache_starts_afresh() {
        let profiler = profiler(Labels::new(8, 4, 8));
        for n in 0..=MAX_PATHS + 1 {
            assert_eq!(named(&profiler, &format!("/users/{n}"), None, 200).0, "POST /users/{id}");
        }
        assert_eq!(profiler.paths.read().by_hash.len(), 1);
    }
}
