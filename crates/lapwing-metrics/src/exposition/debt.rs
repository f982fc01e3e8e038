//! The families of computational debt. They are left out while no request has a debt.

use std::fmt;

use super::encode::{Encoder, SampleLabels, count, family};
use super::scrape::Scrape;
use super::series::ScrapedSeries;
use super::work::FLOORS;
use crate::{DebtTotals, Measure, defs};
use lapwing_ledger::ForwardDebt;

impl Scrape {
    /// Ratios by cost class, and the seconds above the optimum.
    pub(crate) fn debt(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        let indebted = self.series.iter().filter_map(|series| {
            let totals = series.figures.debt().filter(|totals| totals.ratios().count > 0)?;
            Some((series, totals, &**series.optimum.as_ref()?))
        });
        let indebted: Vec<(&ScrapedSeries, &DebtTotals, &str)> = indebted.collect();
        if indebted.is_empty() {
            return Ok(());
        }
        family(encoder, &defs::DEBT_RATIO, |metric| {
            for (series, totals, optimum) in &indebted {
                for values in &series.histograms {
                    let Some((class, labels)) = labels(series, values.measure, optimum) else { continue };
                    let extent = totals.class(class);
                    values.write(metric, series, &labels, extent.count, millionths(extent.sum_ppm))?;
                }
            }
            Ok(())
        })?;
        family(encoder, &defs::DEBT_SECONDS, |metric| {
            for (series, totals, optimum) in &indebted {
                count(metric, series.with(&[("optimum", optimum)]), millionths(totals.excess_ps) / 1e6)?;
            }
            Ok(())
        })
    }
}

/// The cost class of a measure of debt, and the labels of its sample.
fn labels<'a>(series: &'a ScrapedSeries, measure: Measure, optimum: &'a str) -> Option<(usize, SampleLabels<'a>)> {
    let Measure::Debt(class) = measure else { return None };
    let own = [("class", *FLOORS.get(class)?), ("unit", series.facts.primary?.name()), ("optimum", optimum)];
    Some((class, series.with(&own)))
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
fn millionths(of: u128) -> f64 {
    of as f64 / ForwardDebt::PPM as f64
}
