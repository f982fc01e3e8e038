//! A queue in front of the server of a case: it works on one request at a time, so that the others wait, and are woken when it has answered.

use http::{HeaderMap, Method};

use crate::{Observer, Upstreams};
use lapwing_dispatch::{Config, DispatchMode, Dispatching, RatioQuantiles, ServiceLine, ServiceModels, SlotsOf};
use lapwing_ledger::{Ledger, SeriesKey, Stamp};
use lapwing_protocol::{ExchangeReader, Protocols};
use lapwing_settings::{ConfigHandle, Period, Switch};
use lapwing_tower::RecordLedger;

/// What requests ask for: one row each, whatever their body has. The exchange's number follows.
pub(crate) const PATH: &str = "/predictions/";
/// The format of their bodies, as their heads say.
pub(crate) const FORMAT: &str = "application/json";

/// The queue, which knows what requests take. None of them waits by time: longer than a case may.
pub(crate) fn queue(upstreams: &Upstreams) -> Dispatching {
    let config = Config { mode: DispatchMode::On, max_wait: Period::from_secs(3_600), recheck: Switch::Off, ..Config::default() };
    let dispatching = upstreams.dispatched_by(ConfigHandle::fixed(config));
    let ratios = vec![RatioQuantiles { hedge: 1.0, q99: 1.0 }; 25];
    let line = ServiceLine { fixed_ns: 1e6, per_unit_ns: 1e6, samples: 100, unexplained: 0.0, ratios };
    dispatching.plane().publish(ServiceModels {
        made: Stamp::now(),
        lines: [(SeriesKey::default().into(), line)].into_iter().collect(),
        upstreams: vec![SlotsOf { upstream: 0, slots: Ok(1), speed: 1.0 }],
        ..ServiceModels::default()
    });
    dispatching
}

/// Reads what requests ask for, under no name.
#[derive(Debug, Default)]
pub(crate) struct ReadsWork(Protocols);

impl Observer for ReadsWork {
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        self.0.open(&self.0.detect(method, path), headers)
    }
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
    fn model(&self, _: &str, _: &mut Ledger) {}
}

impl RecordLedger for ReadsWork {
    fn record(&self, _: Box<Ledger>) {}
}
