//! A benchmark as a table for people.

use std::io::Write;

use super::super::error::ToolError;
use super::super::numbers::{known, si};
use super::rows::{ColdStart, CpuPeaksRow, PeaksRow, Row, Run};
use lapwing_model::Model;

/// Writes what all cases share, and the names of the columns.
pub(crate) fn head(run: &Run, peaks: &PeaksRow, cold: &ColdStart, model: &Model, out: &mut dyn Write) -> Result<(), ToolError> {
    let threads = if run.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", run.threads) };
    writeln!(out, "{}: run by {} on {}, {}, {threads}", run.model, run.executor, run.device, run.precision)?;
    if let Some(refused) = model.unsupported() {
        writeln!(out, "no plan      because of {refused}")?;
    }
    if let Some(fallback) = &model.placement().fallback {
        writeln!(out, "on the processor because of {fallback}")?;
    }
    let spread = match peaks {
        PeaksRow::Cpu(peaks) => {
            cpu_peaks(run, peaks, out)?;
            peaks.spread
        }
        PeaksRow::Gpu(peaks) => {
            gpu_peaks(peaks, out)?;
            peaks.spread
        }
    };
    if spread > 0.1 {
        writeln!(out, "             the machine is noisy: between windows they varied by {:.0} %", spread * 100.0)?;
    }
    let (load, first) = (si(cold.load_us / 1e6, "s"), si(cold.first_us / 1e6, "s"));
    writeln!(out, "cold start   loaded in {load}, first forward pass in {first}\n")?;
    writeln!(
        out,
        "{:>6}{:>8}{:>12}{:>12}{:>15}{:>12}{:>9}{:>7}{:>12}{:>10}{:>7}",
        "batch", "length", "p50", "p99", "rate", "bytes/s", "bound", "util", "optimum", "speed-up", "runs"
    )?;
    Ok(out.flush()?)
}

fn cpu_peaks(run: &Run, peaks: &CpuPeaksRow, out: &mut dyn Write) -> Result<(), ToolError> {
    writeln!(out, "processor    {} (of it {} for floats, {} for ints)", run.cpu_flags, peaks.level, peaks.level_int8)?;
    writeln!(
        out,
        "peaks        {}, {} in 8 bits; reads {} from L2, {} from the last cache, {} from memory; {} a node",
        si(peaks.fp32_flops_per_s, "FLOP/s"),
        si(peaks.int8_ops_per_s, "OP/s"),
        si(peaks.l2_bytes_per_s, "B/s"),
        si(peaks.llc_bytes_per_s, "B/s"),
        si(peaks.dram_bytes_per_s, "B/s"),
        si(peaks.launch_us / 1e6, "s"),
    )?;
    Ok(())
}

fn gpu_peaks(peaks: &super::rows::GpuPeaksRow, out: &mut dyn Write) -> Result<(), ToolError> {
    writeln!(out, "GPU          {}, with a driver for CUDA {}", peaks.device_name, peaks.driver)?;
    writeln!(
        out,
        "peaks        {} in fp32, {} in tf32, {} in fp16, {} in 8 bits; reads {} from L2, {} from DRAM; {} a kernel",
        si(peaks.fp32_flops_per_s, "FLOP/s"),
        si(peaks.tf32_flops_per_s, "FLOP/s"),
        si(peaks.fp16_flops_per_s, "FLOP/s"),
        si(peaks.int8_ops_per_s, "OP/s"),
        si(peaks.l2_bytes_per_s, "B/s"),
        si(peaks.dram_bytes_per_s, "B/s"),
        si(peaks.launch_us / 1e6, "s"),
    )?;
    Ok(())
}

/// Writes one case.
pub(crate) fn row(row: &Row, out: &mut dyn Write) -> Result<(), ToolError> {
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    let suspect = if row.peak_suspect == Some(true) { "  (above the peak: the peak is suspect)" } else { "" };
    writeln!(
        out,
        "{:>6}{:>8}{:>12}{:>12}{:>15}{:>12}{:>9}{:>7}{:>12}{:>10}{:>7}{suspect}",
        row.batch,
        row.length.map_or("-".to_owned(), |length| length.to_string()),
        si(row.p50_us / 1e6, "s"),
        si(row.p99_us / 1e6, "s"),
        known(row.flops_per_s, "FLOP/s"),
        known(row.bytes_per_s, "B/s"),
        row.bound.unwrap_or("-"),
        share(row.utilisation),
        known(row.optimum_us.map(|us| us / 1e6), "s"),
        row.batch_speed_up.map_or("-".to_owned(), |times| format!("{times:.2}×")),
        row.runs,
    )?;
    Ok(out.flush()?)
}
