//! What a request asks the cache: its question, by what is known of it.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};

use crate::body::capture::CaptureBudget;
use crate::body::{HeldRequest, ResponseBody};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::placement::Placement;
use lapwing_cache::{Cache, CacheQuestion, CacheSeries, QuestionContext};
use lapwing_ledger::Stamp;
use lapwing_protocol::request_match::KnownRequest;

pub(crate) type Answer = Result<Response<ResponseBody>, Error>;

/// The cache of a stack, and the memory for bodies that pass.
#[derive(Clone, Debug)]
pub(crate) struct StackCache {
    /// With the settings in force.
    pub(crate) cache: Arc<Cache>,
    /// For answers on their way, and requests of which nothing is held.
    pub(crate) budget: Arc<CaptureBudget>,
    /// Which upstreams answer alike, if there are several.
    pub(crate) placement: Option<Arc<Placement>>,
}

/// What a request counts under.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) series: CacheSeries,
    /// How much it asks for.
    pub(crate) units: Option<u64>,
}

impl StackCache {
    /// The question of a request whose body has come whole.
    pub(crate) fn question(&self, held: &mut HeldRequest, asked: Stamp) -> Option<CacheQuestion> {
        let pieces = held.whole_pieces()?;
        let in_flight = held.tracked().in_flight.clone();
        let account = &in_flight.account;
        let model = account.named_model();
        if let Some(model) = &model {
            account.count_under(model);
        }
        let series = account.read_ledger(|ledger| ledger.series.into())?;
        let counted = Counted { series, units: account.asked_work() };
        self.question_of((held.head(), &pieces), model.as_deref(), (counted, asked), &in_flight)
    }

    /// The question of a request with this whole body.
    pub(crate) fn question_of<B>(
        &self,
        (head, pieces): (&Request<B>, &[Bytes]),
        model: Option<&str>,
        (counted, asked): (Counted, Stamp),
        in_flight: &InFlight,
    ) -> Option<CacheQuestion> {
        let known = KnownRequest { model, work: counted.units, key: None };
        let pool = match &self.placement {
            Some(placement) => placement.answering_pool(head, known)?,
            None => String::new(),
        };
        let identity = in_flight.meter.certificate.get().map(AsRef::as_ref);
        self.cache.question(head, pieces, QuestionContext { known, pool: &pool, series: counted.series, identity, asked })
    }
}
