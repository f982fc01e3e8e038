//! The families of shadow-serving, which are absent without a target, and that of recordings.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lapwing_ledger::CopyCause;
use lapwing_metrics::exposition::{Encoder, HistogramSample, ScrapeScope, ScrapedSeries, count, family, histogram};
use lapwing_metrics::{Measure, Window, defs, gather};
use lapwing_shadow::{
    PairFigure, QuotaOfRoute, QuotaResult, RATIO_BOUNDS, RatioHistogram, ShadowCounters, ShadowDrop, ShadowSurface,
};

/// Writes what recordings did not write, if that is anything.
pub(crate) fn recording(counters: &ShadowCounters, encoder: &mut dyn Encoder) -> fmt::Result {
    let mut dropped = dropped(|reason| counters.dropped(reason));
    dropped.retain(|(_, n)| *n > 0);
    if dropped.is_empty() {
        return Ok(());
    }
    family(encoder, &defs::RECORDING_DROPPED, |metric| {
        dropped.iter().try_for_each(|(reason, n)| count(metric, vec![("reason", *reason)], *n))
    })
}

/// What a scrape shows of shadow-serving.
#[derive(Debug)]
pub(crate) struct Shadow {
    sampled: u64,
    /// By route and result.
    quotas: Vec<(String, QuotaResult, u64)>,
    dropped: Vec<(&'static str, u64)>,
    targets: Vec<Target>,
    series: Vec<ScrapedSeries>,
}

#[derive(Debug)]
struct Target {
    name: String,
    answered: u64,
    failed: u64,
    dropped: Vec<(&'static str, u64)>,
    /// By cause.
    compared: Vec<(CopyCause, u64)>,
    /// By cause and reason.
    unjudged: Vec<(CopyCause, &'static str, u64)>,
    /// By cause and kind.
    mismatches: Vec<(CopyCause, &'static str, u64)>,
    /// By route, model and figure.
    ratios: Vec<(Arc<str>, Arc<str>, PairFigure, RatioHistogram)>,
}

/// The count of every reason.
fn dropped(count: impl Fn(ShadowDrop) -> u64) -> Vec<(&'static str, u64)> {
    ShadowDrop::ALL.iter().map(|reason| (reason.name(), count(*reason))).collect()
}

fn of_quota(quota: &QuotaOfRoute) -> impl Iterator<Item = (String, QuotaResult, u64)> {
    QuotaResult::ALL.into_iter().map(|result| (quota.route.clone(), result, quota.count(result)))
}

impl Shadow {
    pub(crate) fn of(shadow: &ShadowSurface, scope: &ScrapeScope) -> Self {
        let labels = &shadow.labels;
        let target = |(index, info): (usize, &lapwing_shadow::TargetInfo)| {
            let counters = shadow.counters.target(index)?;
            let ratios = shadow.pairs.lock().ratios(index);
            let named = |((route, model, figure), ratios)| (labels.routes.text(route), labels.models.text(model), figure, ratios);
            let outputs = shadow.outputs.lock();
            Some(Target {
                name: info.name.clone(),
                answered: counters.answered.load(Relaxed),
                failed: counters.failed.load(Relaxed),
                dropped: dropped(|reason| counters.dropped(reason)),
                compared: outputs.compared(index).collect(),
                unjudged: outputs.unjudged(index).collect(),
                mismatches: outputs.mismatches(index).collect(),
                ratios: ratios.into_iter().map(named).collect(),
            })
        };
        let series = gather::series(&shadow.registry, Window::All, |series| {
            let target = shadow.targets.iter().find(|target| *target.label == *series.upstream)?;
            Some(ScrapedSeries::of_copies(series, &target.name, scope))
        });
        let mut before = dropped(|reason| shadow.counters.dropped(reason));
        before.push(("unpaired", shadow.pairs.lock().unpaired()));
        Self {
            sampled: shadow.counters.sampled.load(Relaxed),
            quotas: shadow.quotas.routes().flat_map(of_quota).collect(),
            dropped: before,
            targets: shadow.targets.iter().enumerate().filter_map(target).collect(),
            series: series.into_iter().flatten().collect(),
        }
    }

    pub(crate) fn encode(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        family(encoder, &defs::SHADOW_SAMPLED, |metric| count(metric, Vec::new(), self.sampled))?;
        family(encoder, &defs::SHADOW_QUOTA, |metric| {
            let mut quotas = self.quotas.iter();
            quotas
                .try_for_each(|(route, result, n)| count(metric, vec![("route", route.as_str()), ("result", result.name())], *n))
        })?;
        family(encoder, &defs::SHADOW_REQUESTS, |metric| {
            for target in &self.targets {
                for (result, n) in [("answered", target.answered), ("failed", target.failed)] {
                    count(metric, vec![("target", target.name.as_str()), ("result", result)], n)?;
                }
            }
            Ok(())
        })?;
        family(encoder, &defs::SHADOW_DROPPED, |metric| {
            let of_targets =
                self.targets.iter().flat_map(|target| target.dropped.iter().map(|(reason, n)| (&*target.name, *reason, *n)));
            let before = self.dropped.iter().map(|(reason, n)| ("", *reason, *n));
            for (target, reason, n) in before.chain(of_targets).filter(|(.., n)| *n > 0) {
                count(metric, vec![("target", target), ("reason", reason)], n)?;
            }
            Ok(())
        })?;
        family(encoder, &defs::SHADOW_COMPARED, |metric| {
            for target in &self.targets {
                for (cause, n) in &target.compared {
                    count(metric, vec![("target", target.name.as_str()), ("cause", cause.name())], *n)?;
                }
            }
            Ok(())
        })?;
        family(encoder, &defs::SHADOW_UNJUDGED, |metric| {
            for target in &self.targets {
                for (cause, reason, n) in &target.unjudged {
                    let labels = vec![("target", target.name.as_str()), ("cause", cause.name()), ("reason", reason)];
                    count(metric, labels, *n)?;
                }
            }
            Ok(())
        })?;
        family(encoder, &defs::SHADOW_MISMATCHES, |metric| {
            for target in &self.targets {
                for (cause, kind, n) in &target.mismatches {
                    let labels = vec![("target", target.name.as_str()), ("cause", cause.name()), ("kind", kind)];
                    count(metric, labels, *n)?;
                }
            }
            Ok(())
        })?;
        histogram(&self.series, encoder, &defs::SHADOW_DURATION, |_, measure| match measure {
            Measure::Total => Some(vec![("stage", PairFigure::Total.name())]),
            Measure::Stage(stage) => Some(vec![("stage", stage.name())]),
            _ => None,
        })?;
        self.ratios(encoder)
    }

    #[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
    fn ratios(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        family(encoder, &defs::SHADOW_RATIO, |metric| {
            for target in &self.targets {
                for (route, model, figure, ratios) in &target.ratios {
                    let labels = vec![("target", &*target.name), ("route", route), ("model", model), ("stage", figure.name())];
                    let bounds = RATIO_BOUNDS.into_iter().chain([f64::INFINITY]);
                    let buckets: Vec<(f64, u64)> = bounds.zip(ratios.buckets).collect();
                    let sum = ratios.sum_millionths as f64 / 1e6;
                    let sample = HistogramSample { count: ratios.count(), sum, buckets: &buckets, native: None, exemplars: &[] };
                    metric.histogram(&labels.into(), &sample)?;
                }
            }
            Ok(())
        })
    }
}
