//! The families of requests, stages and streams.

use std::fmt;

use super::encode::{Encoder, SampleLabels, count, family, gauge};
use super::scrape::Scrape;
use super::series::{ScrapedSeries, histogram, seconds};
use crate::{Measure, PolledSnapshot, PolledSum, defs};
use lapwing_ledger::{Outcome, Phase, Source, Stage};

/// The measures of total time, each with its value of the label `result`.
const RESULTS: [(Measure, &str); 4] =
    [(Measure::Total, "answered"), (Measure::Cached, "cached"), (Measure::Cancelled, "cancelled"), (Measure::Failed, "failed")];

impl Scrape {
    pub(crate) fn requests(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        family(encoder, &defs::REQUESTS, |metric| {
            for series in &self.series {
                for outcome in Outcome::ALL {
                    let labels = series.with(&[("outcome", outcome.name())]);
                    count(metric, labels, series.figures.outcomes[outcome.index()])?;
                }
            }
            Ok(())
        })?;
        histogram(&self.series, encoder, &defs::REQUEST_DURATION, |_, measure| {
            RESULTS.iter().find(|(of, _)| *of == measure).map(|(_, result)| vec![("result", *result)])
        })
    }

    pub(crate) fn stages(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        histogram(&self.series, encoder, &defs::STAGE_DURATION, |_, measure| match measure {
            Measure::Stage(stage) => Some(vec![("stage", stage.name())]),
            _ => None,
        })?;
        family(encoder, &defs::STAGE_SOURCE, |metric| {
            for series in &self.series {
                for stage in Stage::ALL {
                    let row = Source::ALL.into_iter().zip(series.figures.sources[stage.index()]);
                    for (source, n) in row.filter(|(_, n)| *n > 0) {
                        count(metric, series.with(&[("stage", stage.name()), ("source", source.name())]), n)?;
                    }
                }
            }
            Ok(())
        })
    }

    pub(crate) fn coverage(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        family(encoder, &defs::COVERAGE, |metric| {
            for series in &self.series {
                if let Some(share) = series.figures.coverage() {
                    gauge(metric, series.with(&[]), share)?;
                }
            }
            Ok(())
        })?;
        family(encoder, &defs::WINDOW, |metric| {
            self.series.iter().try_for_each(|s| count(metric, s.with(&[]), seconds(s.figures.window_ns)))
        })?;
        family(encoder, &defs::WINDOW_CLAIMED, |metric| {
            self.series.iter().try_for_each(|s| count(metric, s.with(&[]), seconds(s.figures.claimed_ns)))
        })
    }

    /// What the spans of requests lacked when they were recorded.
    pub(crate) fn completeness(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        for (definition, of) in
            [(&defs::INCOMPLETE, (|s| s.figures.incomplete) as fn(&ScrapedSeries) -> u64), (&defs::MENDED, |s| s.figures.mended)]
        {
            family(encoder, definition, |metric| self.series.iter().try_for_each(|s| count(metric, s.with(&[]), of(s))))?;
        }
        family(encoder, &defs::MENDED_SECONDS, |metric| {
            self.series.iter().try_for_each(|s| count(metric, s.with(&[]), seconds(s.figures.mended_ns)))
        })
    }

    /// What polls counted: each model once, so that sums over the labels are those of the server.
    pub(crate) fn polled(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        family(encoder, &defs::POLLED_SECONDS, |metric| self.each_polled(|labels, sum| count(metric, labels, seconds(sum.ns))))?;
        family(encoder, &defs::POLLED_REQUESTS, |metric| self.each_polled(|labels, sum| count(metric, labels, sum.requests)))
    }

    fn each_polled(&self, mut each: impl FnMut(SampleLabels<'_>, PolledSum) -> fmt::Result) -> fmt::Result {
        for PolledSnapshot { model, upstream, totals, .. } in &self.polled {
            for (stage, phase, sum) in totals.parts() {
                let phase = phase.map_or("", Phase::name);
                let own = vec![("model", &**model), ("upstream", &**upstream), ("stage", stage.name()), ("phase", phase)];
                each(own.into(), sum)?;
            }
        }
        Ok(())
    }

    pub(crate) fn streams(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        histogram(&self.series, encoder, &defs::FIRST_BYTE, |_, measure| (measure == Measure::FirstByte).then(Vec::new))?;
        histogram(&self.series, encoder, &defs::STREAM_DURATION, |_, measure| (measure == Measure::Stream).then(Vec::new))?;
        family(encoder, &defs::STREAM_BYTES, |metric| {
            let had_streams = |s: &&ScrapedSeries| s.figures.extent(Measure::Stream).count > 0;
            for series in self.series.iter().filter(had_streams) {
                count(metric, series.with(&[("direction", "request")]), series.figures.stream_request_bytes)?;
                count(metric, series.with(&[("direction", "response")]), series.figures.stream_response_bytes)?;
            }
            Ok(())
        })
    }
}
