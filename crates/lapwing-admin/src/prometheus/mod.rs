//! `/metrics`: the families of the registry with those of the diagnosis, of what is inferred and of shadow-serving among them, in
//! the format that a scrape asks for: Prometheus protobuf with native histograms, OpenMetrics text, or Prometheus text 0.0.4.

use std::fmt;
use std::sync::Arc;

use opentelemetry_proto::tonic::metrics::v1::Metric;

use self::otlp::OtlpEncoder;
use super::cache::{self as answers, CacheView};
use super::diagnosis::DiagnosisSurface;
use super::dispatch::{self as queue, DispatchView};
use super::inferred::InferredSeries;
use super::surfaces::{Surfaces, UpstreamState};
use lapwing_metrics::Counter;
use lapwing_metrics::exposition::{Encoder, ExpositionFormat, Extras, Scrape, ScrapeScope};
use lapwing_outbound::DownstreamFamilies;
use lapwing_shadow::ShadowCounters;
use lapwing_shadow::split::SplitStatus;
use lapwing_shadow::switchback::TrialStatus;

mod cache;
mod diagnosis;
mod dispatch;
mod inferred;
mod otlp;
mod shadow;
mod split;
mod trials;
mod upstreams;

/// Writes all families in a format, in pieces.
///
/// # Errors
///
/// When a family cannot be encoded, which does not happen.
pub(crate) fn write(surfaces: &Surfaces, format: ExpositionFormat) -> Result<Vec<Vec<u8>>, fmt::Error> {
    let native = {
        let registry = surfaces.registry.lock();
        (registry.config().native_schema, registry.config().classic_buckets)
    };
    format.page(native, surfaces.started_unix_ns, |schema, encoder| encode(surfaces, schema, encoder))
}

/// All families as OTLP metrics, cumulative.
///
/// # Errors
///
/// When a family cannot be encoded, which does not happen.
pub(crate) fn otlp_metrics(surfaces: &Surfaces, now_unix_ns: u64) -> Result<Vec<Metric>, fmt::Error> {
    let schema = surfaces.registry.lock().config().native_schema;
    let mut encoder = OtlpEncoder::new(surfaces.started_unix_ns, now_unix_ns);
    encode(surfaces, Some(schema), &mut encoder)?;
    Ok(encoder.finish())
}

fn encode(surfaces: &Surfaces, native_schema: Option<i8>, encoder: &mut dyn Encoder) -> fmt::Result {
    let Surfaces { started, started_unix_ns, .. } = *surfaces;
    let scope = ScrapeScope { started, started_unix_ns, native_schema };
    let scrape = Scrape::of(&surfaces.registry, &surfaces.counters, &scope);
    scrape.encode(&AdminFamilies::of(surfaces, &scrape, &scope), encoder)
}

/// The families that are not the registry's.
#[derive(Debug)]
struct AdminFamilies {
    shadow: Option<shadow::Shadow>,
    recording: Arc<ShadowCounters>,
    excess: Option<diagnosis::BudgetExcess>,
    upstreams: Vec<UpstreamState>,
    split: Option<SplitStatus>,
    trial: Option<TrialStatus>,
    dispatch: Option<DispatchView>,
    cache: Option<CacheView>,
    downstreams: Vec<DownstreamFamilies>,
    inferred: Option<InferredSeries>,
    /// Requests in flight.
    in_flight: u64,
}

impl AdminFamilies {
    fn of(surfaces: &Surfaces, scrape: &Scrape, scope: &ScrapeScope) -> Self {
        let labels = surfaces.registry.lock().labels().clone();
        let excess = |diagnosis: &DiagnosisSurface| diagnosis::BudgetExcess::of((diagnosis.totals)(), &labels, &scrape.series);
        Self {
            shadow: surfaces.shadow.as_ref().map(|shadow| shadow::Shadow::of(shadow, scope)),
            recording: surfaces.recording.clone(),
            upstreams: (surfaces.upstreams)(),
            split: surfaces.split.as_ref().map(|split| split.lock().status()),
            trial: surfaces.trials.as_ref().and_then(|trials| trials.lock().status()),
            dispatch: surfaces.dispatch.as_ref().and_then(|dispatch| queue::view(dispatch, &labels, &surfaces.counters)),
            cache: surfaces.cache.as_ref().and_then(|caching| answers::view(caching, &labels)),
            downstreams: surfaces.downstreams.as_ref().map(|all| all.families(scope.native_schema)).unwrap_or_default(),
            excess: surfaces.diagnosis.as_ref().map(excess),
            inferred: surfaces.inferred(),
            in_flight: surfaces.counters.get(Counter::InFlight),
        }
    }
}

impl Extras for AdminFamilies {
    fn after_budgets(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        self.excess.as_ref().map_or(Ok(()), |excess| excess.encode(encoder))
    }

    fn after_polled(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        self.inferred.as_ref().map_or(Ok(()), |inferred| inferred::encode(inferred, self.in_flight, encoder))
    }

    fn after_batches(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        if let Some(shadow) = &self.shadow {
            shadow.encode(encoder)?;
        }
        shadow::recording(&self.recording, encoder)?;
        upstreams::encode(&self.upstreams, encoder)?;
        if let Some(split) = &self.split {
            split::encode(split, encoder)?;
        }
        if let Some(trial) = &self.trial {
            trials::encode(trial, encoder)?;
        }
        self.dispatch.as_ref().map_or(Ok(()), |view| dispatch::encode(view, encoder))?;
        self.cache.as_ref().map_or(Ok(()), |view| cache::encode(view, encoder))?;
        lapwing_outbound::encode(&self.downstreams, encoder)
    }
}

#[cfg(test)]
mod tests;
