//! `lapwing engine bench`: times a model's forward passes one by one, and compares them with the machine's peaks.

#[cfg(feature = "cuda")]
mod gpu;
mod loaded;
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "rows of a GPU"))]
mod rows;
mod runs_on;
mod table;
#[cfg(test)]
mod tests;
#[cfg(not(feature = "cuda"))]
mod without_gpu;
#[cfg(not(feature = "cuda"))]
use without_gpu as gpu;

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use self::loaded::{Loaded, Requested, SEED};
use self::rows::{ColdStart, Row, Run};
use self::runs_on::Machine;
use super::cli::BenchArgs;
use super::error::ToolError;
use super::machine;
use super::output;
use super::shapes::{Asked, Shape};
use lapwing_diagnosis::cost::processor_name;
use lapwing_engine::cpu;
use lapwing_engine::cpu::threads::Threads;
use lapwing_ledger::{Stamp, clock};
use lapwing_model::{Device, Model, Workspace};
use lapwing_onnx::tensor::Tensor;
use lapwing_plan::Precision;

const BATCH: &[u64] = &[1, 32];
const LENGTH: &[u64] = &[64];
/// The least number of timed forward passes of a case.
const LEAST_RUNS: usize = 5;
/// Forward passes before a case is timed.
const WARM_RUNS: usize = 3;
/// Measures the requested cases and writes each row when it is measured.
pub(crate) fn run(args: &BenchArgs, out: &mut (dyn Write + Send)) -> Result<(), ToolError> {
    check(args)?;
    let asked = Requested::of(args)?;
    for count in counts(args) {
        let threads = machine::threads(count, args.cpus.as_ref())?;
        let is_on_gpu = machine::apart(&threads, args.cpus.as_ref(), || group(args, &asked, &threads, out))?;
        if is_on_gpu {
            break; // one thread launches its work, whatever their number
        }
    }
    Ok(())
}

/// The numbers of threads, without duplicates.
fn counts(args: &BenchArgs) -> Vec<usize> {
    let mut counts: Vec<usize> = args.threads.iter().map(|count| usize::try_from(*count).unwrap_or(usize::MAX)).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Refuses a combination of arguments that would run elsewhere, or in another number format, than its rows would say.
fn check(args: &BenchArgs) -> Result<(), ToolError> {
    if args.calibration.is_some() && args.precision != Precision::Int8 {
        return Err(ToolError::argument("calibration", "needs --precision int8"));
    }
    if !args.executor.allows_plan() && args.precision != Precision::Fp32 {
        let (name, executor) = (args.precision.name(), args.executor.name());
        return Err(ToolError::argument("precision", format!("{name} needs a plan; {executor} runs models in fp32 alone")));
    }
    match args.device {
        Device::Cuda(_) if !lapwing_engine::HAS_CUDA => {
            let reason = "is not in this build, which was made without the feature cuda";
            Err(ToolError::argument("device", format!("{} {reason}", args.device)))
        }
        Device::Cuda(_) if !args.executor.allows_plan() => {
            let executor = args.executor.name();
            Err(ToolError::argument("device", format!("{} needs a plan, but executor is {executor}", args.device)))
        }
        Device::Cuda(_) if counts(args) != [1] => {
            Err(ToolError::argument("threads", format!("{:?}: one thread launches the work of {}", args.threads, args.device)))
        }
        Device::Cpu if matches!(args.precision, Precision::Tf32 | Precision::Fp16) => {
            Err(ToolError::argument("precision", format!("{} needs a GPU, but device is cpu", args.precision.name())))
        }
        Device::Cpu if args.cuda_lib_dir.is_some() => {
            Err(ToolError::argument("cuda-lib-dir", "has no effect while device is cpu"))
        }
        _ => Ok(()),
    }
}

/// Measures all cases with these threads; returns whether a GPU ran them.
fn group(args: &BenchArgs, asked: &Requested, threads: &Arc<Threads>, out: &mut (dyn Write + Send)) -> Result<bool, ToolError> {
    let plan = cpu::CpuOptions { threads: Arc::clone(threads), ..cpu::CpuOptions::default() };
    let mut workspace = Workspace::default();
    let loaded = Loaded::new(args, asked, plan.clone())?;
    let model = &loaded.model;
    let sizes = Asked { batch: &args.batch, length: &args.length, batch_default: BATCH, length_default: LENGTH };
    let shapes = sizes.shapes(model)?;
    let first = forward(model, &mut workspace, &loaded.inputs(shapes[0], SEED)?)?;
    let placement = model.placement();
    let mut machine = Machine::of(&loaded, &plan)?;
    let run = Run {
        model: output::name_of(&args.model),
        device: placement.device.clone(),
        device_name: placement.device_name.clone(),
        executor: model.executor().name(),
        precision: model.precision(),
        threads: if machine.is_gpu() { 1 } else { threads.count() },
        cpu_flags: machine::cpu_flags(),
        processor: processor_name(),
        measured_at: humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(clock::unix_ns())).to_string(),
    };
    let peaks_row = machine.row(&run, &plan)?;
    let cold = ColdStart::new(&run, shapes[0], loaded.load_ns, first);
    if args.json {
        output::line(out, &peaks_row)?;
        output::line(out, &cold)?;
    } else {
        table::head(&run, &peaks_row, &cold, model, out)?;
    }
    let mut one = HashMap::new();
    for shape in shapes {
        let turns = loaded.turns(shape, args.samples || machine.is_gpu())?;
        let times = times(model, &mut workspace, &turns, args.seconds)?;
        let case = machine.case(&loaded, &mut workspace, shape, &turns[0], args.samples)?;
        if model.placement() != placement {
            let fallback = model.placement().fallback.as_ref().map_or(String::new(), |fallback| fallback.detail.clone());
            return Err(ToolError::told(format!("{} failed, and nothing else is measured instead: {fallback}", run.device)));
        }
        let mut sorted = times.clone();
        sorted.sort_unstable();
        let p50 = machine::percentile(&sorted, 0.5);
        if shape.batch == 1 {
            one.insert(shape.length, p50);
        }
        let mut row = Row::new(&run, shape, &sorted, &case.work, one.get(&shape.length).copied());
        row.samples_us = args.samples.then(|| times.iter().map(|ns| *ns as f64 / 1e3).collect());
        row.on_gpu = case.on_gpu;
        if args.json { output::line(out, &row)? } else { table::row(&row, out)? }
    }
    Ok(machine.is_gpu())
}

/// Runs one forward pass and returns its time in nanoseconds, without concatenating inputs and splitting outputs.
fn forward(model: &Model, workspace: &mut Workspace, inputs: &[Tensor]) -> Result<u64, ToolError> {
    Ok(model.run(workspace, &[inputs])?.forward_ns)
}

/// Times of forward passes in their order, after some warm-up passes.
fn times(model: &Model, workspace: &mut Workspace, turns: &[Vec<Tensor>], seconds: f64) -> Result<Vec<u64>, ToolError> {
    let budget_ns = (seconds * 1e9) as u64;
    let mut turns = turns.iter().cycle();
    let mut pass = || turns.next().map_or(Ok(0), |inputs| forward(model, workspace, inputs));
    let began = Stamp::now();
    for run in 0.. {
        if run >= WARM_RUNS && began.elapsed() >= budget_ns / 10 {
            break;
        }
        pass()?;
    }
    let mut times = Vec::with_capacity(1 << 16);
    let began = Stamp::now();
    while times.len() < LEAST_RUNS || began.elapsed() < budget_ns {
        times.push(pass()?);
    }
    Ok(times)
}
