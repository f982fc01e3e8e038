//! The report on a model in one precision. docs/ENGINE.md documents the fields; their names are stable.

use std::io::Write;

use serde::Serialize;

use super::super::error::ToolError;
use super::super::numbers::si;
use lapwing_plan::quant::Accuracy;

/// The fields that the reports of one model share.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shared {
    pub(crate) model: String,
    pub(crate) device: &'static str,
    pub(crate) executor: &'static str,
    pub(crate) threads: usize,
    pub(crate) cpu_flags: String,
    pub(crate) batch: usize,
    pub(crate) length: Option<usize>,
    pub(crate) rows: usize,
    pub(crate) products: usize,
}

/// The model in one precision.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PrecisionReport {
    #[serde(flatten)]
    pub(crate) shared: Shared,
    pub(crate) precision: &'static str,
    pub(crate) ranges: Option<&'static str>,
    pub(crate) weight_bytes: usize,
    pub(crate) p50_us: f64,
    pub(crate) speed_up: f64,
    pub(crate) int8_products: usize,
    pub(crate) static_products: usize,
    /// The distance of each output from single precision; empty for single precision itself.
    pub(crate) outputs: Vec<Output>,
}

/// The distance of an output from single precision.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) rows: usize,
    pub(crate) max_error: f64,
    pub(crate) mean_error: f64,
    pub(crate) cosine_min: f64,
    pub(crate) cosine_mean: f64,
    pub(crate) top1_agreement: f64,
}

impl Output {
    pub(crate) fn new(name: &str, rows: usize, accuracy: Accuracy) -> Self {
        let Accuracy { max_error, mean_error, cosine_min, cosine_mean, top1_agreement } = accuracy;
        Self { name: name.to_owned(), rows, max_error, mean_error, cosine_min, cosine_mean, top1_agreement }
    }
}

/// Writes the reports for people.
pub(crate) fn table(reports: &[PrecisionReport], out: &mut dyn Write) -> Result<(), ToolError> {
    let Some(PrecisionReport { shared, .. }) = reports.first() else { return Ok(()) };
    let length = shared.length.map_or_else(String::new, |length| format!(" of {length} tokens"));
    let (model, batch, rows) = (&shared.model, shared.batch, shared.rows);
    writeln!(out, "{model}: {rows} rows{length}, in batches of {batch}; threads: {}; {}", shared.threads, shared.cpu_flags)?;
    writeln!(out, "\n{:<14}{:>12}{:>12}{:>10}{:>10}{:>10}", "", "weights", "p50", "speed-up", "in bytes", "static")?;
    for report in reports {
        let of = |count: usize| format!("{count}/{}", shared.products);
        writeln!(
            out,
            "{:<14}{:>12}{:>12}{:>9.2}×{:>10}{:>10}",
            name(report),
            si(report.weight_bytes as f64, "B"),
            si(report.p50_us / 1e6, "s"),
            report.speed_up,
            of(report.int8_products),
            of(report.static_products),
        )?;
    }
    writeln!(
        out,
        "\n{:<14}{:>12}{:>12}{:>12}{:>13}{:>8}{:>9}  output",
        "against fp32", "max error", "mean error", "cosine min", "cosine mean", "top-1", "rows"
    )?;
    for report in reports {
        for output in &report.outputs {
            writeln!(
                out,
                "{:<14}{:>12.3e}{:>12.3e}{:>12.5}{:>13.5}{:>6.1} %{:>9}  {}",
                name(report),
                output.max_error,
                output.mean_error,
                output.cosine_min,
                output.cosine_mean,
                output.top1_agreement * 100.0,
                output.rows,
                output.name
            )?;
        }
    }
    Ok(())
}

/// `int8 static`
fn name(report: &PrecisionReport) -> String {
    report.ranges.map_or_else(|| report.precision.to_owned(), |ranges| format!("{} {ranges}", report.precision))
}
