//! `lapwing engine quantize`: compares a model in 8 bits with single precision on given rows: its size, its speed, and the distance of
//! its outputs. It changes no setting; the ranges that it finds may be written to a file for `precision: int8`.

mod report;
mod rows;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::sync::Arc;

use self::report::{Output, PrecisionReport, Shared};
use self::rows::FileRows;
use super::cli::QuantizeArgs;
use super::error::ToolError;
use super::machine::{self, percentile};
use super::output;
use lapwing_engine::cpu::threads::Threads;
use lapwing_engine::cpu::{self, CpuExecutor, CpuState};
use lapwing_ledger::Stamp;
use lapwing_model::{Model, ModelOptions};
use lapwing_onnx::EngineError;
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_plan::Precision;
use lapwing_plan::exec::{CpuPrecision, RowQuant};
use lapwing_plan::plan::{self, Op};
use lapwing_plan::quant::calibration::Calibration;
use lapwing_plan::quant::{Accuracy, RangeObserver};

/// The least number of timed batches in each precision.
const LEAST_RUNS: usize = 5;

/// Writes the requested reports to `out`.
pub(crate) fn run(args: &QuantizeArgs, out: &mut (dyn Write + Send)) -> Result<(), ToolError> {
    let threads = machine::threads(usize::try_from(args.threads).unwrap_or(usize::MAX), args.cpus.as_ref())?;
    machine::apart(&threads, args.cpus.as_ref(), || quantize(args, &threads, out))
}

fn quantize(args: &QuantizeArgs, threads: &Arc<Threads>, out: &mut (dyn Write + Send)) -> Result<(), ToolError> {
    let graph = ShapedGraph::read(&args.model)?;
    let exact = load(&graph, threads, CpuPrecision::Fp32)?;
    let exact_run = executor(&exact)?;
    let calibrate = FileRows::read(&args.calibrate, "calibrate", &exact)?;
    let against = args.against.as_ref().map(|file| FileRows::read(file, "against", &exact)).transpose()?;
    let dynamic = load(&graph, threads, CpuPrecision::Int8(Vec::new()))?;
    let dynamic_run = executor(&dynamic)?;
    let batch = usize::try_from(args.batch).unwrap_or(usize::MAX);
    let ranges = ranges(exact_run, dynamic_run, &calibrate, batch)?;
    if let Some(file) = &args.output {
        let calibration = Calibration::new(&output::name_of(&args.model), exact_run.plan(), &ranges);
        calibration.write(file).map_err(ToolError::told)?;
    }
    let fixed = load(&graph, threads, CpuPrecision::Int8(ranges))?;
    let rows = against.as_ref().unwrap_or(&calibrate);
    let executors = [exact_run, dynamic_run, executor(&fixed)?];
    let times = times(executors, rows, batch.min(rows.count()), args.seconds)?;
    let shared = Shared {
        model: output::name_of(&args.model),
        device: "cpu",
        executor: exact.executor().name(),
        threads: threads.count(),
        cpu_flags: machine::cpu_flags(),
        batch: batch.min(rows.count()),
        length: rows.length(),
        rows: rows.count(),
        products: exact_run.plan().nodes.iter().filter(|node| matches!(node.op, Op::Gemm { .. })).count(),
    };
    let truth = outputs(exact_run, rows, batch)?;
    let mut reports = Vec::with_capacity(3);
    for (at, executor) in executors.into_iter().enumerate() {
        let outputs = if at == 0 { Vec::new() } else { compare(executor, rows, &truth, &outputs(executor, rows, batch)?)? };
        let p50_ns = |at: usize| percentile(&times[at], 0.5) as f64;
        reports.push(PrecisionReport {
            shared: shared.clone(),
            precision: if at == 0 { "fp32" } else { "int8" },
            ranges: [None, Some("dynamic"), Some("static")][at],
            weight_bytes: executor.weight_bytes(),
            p50_us: p50_ns(at) / 1e3,
            speed_up: if p50_ns(at) > 0.0 { p50_ns(0) / p50_ns(at) } else { 1.0 },
            int8_products: executor.quantized_nodes(),
            static_products: executor.fixed_nodes(),
            outputs,
        });
    }
    if args.json { reports.iter().try_for_each(|report| output::line(out, report)) } else { report::table(&reports, out) }
}

fn load(graph: &Arc<ShapedGraph>, threads: &Arc<Threads>, precision: CpuPrecision) -> Result<Model, ToolError> {
    let plan = cpu::CpuOptions { threads: Arc::clone(threads), precision, ..cpu::CpuOptions::default() };
    Ok(Model::new(graph, &ModelOptions { plan, ..ModelOptions::default() })?)
}

/// The executor of its plan; 8 bits need one.
fn executor(model: &Model) -> Result<&CpuExecutor, ToolError> {
    match (model.plan_executor(), model.unsupported()) {
        (Some(executor), _) => Ok(executor),
        (None, Some(refused)) => Err(EngineError::NoPlan(refused.clone()).into()),
        (None, None) => Err(ToolError::told("the model has no plan")),
    }
}

/// The range of the inputs of each product that runs in 8 bits, if one range suits all rows.
fn ranges(exact: &CpuExecutor, dynamic: &CpuExecutor, rows: &FileRows, batch: usize) -> Result<Vec<Option<RowQuant>>, ToolError> {
    let plan = exact.plan();
    let is_seen = |place: usize| dynamic.product_precision(place) == Precision::Int8;
    let mut observers: Vec<Option<RangeObserver>> =
        (0..plan.nodes.len()).map(|at| is_seen(at).then(RangeObserver::new)).collect();
    let (mut state, mut outputs, mut fault) = (CpuState::default(), Vec::new(), None);
    let mut kept = Vec::new();
    for range in rows.batches(batch) {
        let mask = rows.mask(range.clone());
        let mut see = |place: usize, data: &[f32], width: usize| {
            let Some(Some(observer)) = observers.get_mut(place) else { return };
            let node = &plan.nodes[place];
            let is_token = plan.value(node.output).rows == plan::Rows::Token;
            let added = match mask {
                Some(mask) if is_token => {
                    select_rows(data, width, mask, &mut kept);
                    observer.add(&kept)
                }
                _ => observer.add(data),
            };
            if let Err(error) = added {
                fault.get_or_insert_with(|| ToolError::Told(format!("{}: {error}", node.name)));
            }
        };
        rows.with(range, |batch| exact.observed(&mut state, batch, &mut outputs, Some(&mut see))).map_err(ToolError::told)?;
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    let named = |(place, observer): (usize, Option<RangeObserver>)| {
        let Some(observer) = observer else { return Ok(None) };
        observer.fixed().map_err(|error| ToolError::Told(format!("{}: {error}", plan.nodes[place].name)))
    };
    observers.into_iter().enumerate().map(named).collect()
}

/// Keeps the rows that are not masked out.
fn select_rows(data: &[f32], width: usize, mask: &[bool], kept: &mut Vec<f32>) {
    kept.clear();
    let rows = data.chunks_exact(width).zip(mask);
    rows.filter(|(_, counts)| **counts).for_each(|(row, _)| kept.extend_from_slice(row));
}

/// Every output over all rows, without tokens that are masked out.
fn outputs(executor: &CpuExecutor, rows: &FileRows, batch: usize) -> Result<Vec<Vec<f32>>, ToolError> {
    let plan = executor.plan();
    let (mut state, mut made) = (CpuState::default(), Vec::new());
    let mut all: Vec<Vec<f32>> = vec![Vec::new(); plan.outputs.len()];
    let mut kept = Vec::new();
    for range in rows.batches(batch) {
        rows.with(range.clone(), |batch| executor.run(&mut state, batch, &mut made)).map_err(ToolError::told)?;
        for ((all, made), port) in all.iter_mut().zip(&made).zip(&plan.outputs) {
            let value = plan.value(port.value);
            match rows.mask(range.clone()) {
                Some(mask) if value.rows == plan::Rows::Token => {
                    select_rows(made, value.width, mask, &mut kept);
                    all.extend_from_slice(&kept);
                }
                _ => all.extend_from_slice(made),
            }
        }
    }
    Ok(all)
}

fn compare(executor: &CpuExecutor, rows: &FileRows, exact: &[Vec<f32>], got: &[Vec<f32>]) -> Result<Vec<Output>, ToolError> {
    let plan = executor.plan();
    let mut compared = Vec::with_capacity(exact.len());
    for ((port, exact), got) in plan.outputs.iter().zip(exact).zip(got) {
        let width = plan.value(port.value).width;
        let count = exact.len() / width.max(1);
        let fails = |error| ToolError::Told(format!("output {}, on {}: {error}", port.name, rows.name()));
        let accuracy = Accuracy::of(exact, got, count, width).map_err(fails)?;
        compared.push(Output::new(&port.name, count, accuracy));
    }
    Ok(compared)
}

/// Sorted times of full batches. The executors take turns, so that a disturbance of the machine affects all of them.
fn times(executors: [&CpuExecutor; 3], rows: &FileRows, batch: usize, seconds: f64) -> Result<[Vec<u64>; 3], ToolError> {
    let mut times: [Vec<u64>; 3] = Default::default();
    let mut states: [CpuState; 3] = Default::default();
    let mut outputs = Vec::new();
    let budget_ns = (seconds * 1e9) as u64;
    let mut began = Stamp::now();
    // the first round allocates memory and is not counted
    for round in 0.. {
        for range in rows.batches(batch).filter(|range| range.len() == batch) {
            for (at, executor) in executors.into_iter().enumerate() {
                let (state, outputs) = (&mut states[at], &mut outputs);
                let took = rows.with(range.clone(), |batch| {
                    let began = Stamp::now();
                    executor.run(state, batch, outputs).map(|()| began.elapsed())
                });
                times[at].push(took.map_err(ToolError::told)?);
            }
            let is_over = began.elapsed() >= budget_ns && times[0].len() >= LEAST_RUNS;
            if round > 0 && is_over {
                times.iter_mut().for_each(|times| times.sort_unstable());
                return Ok(times);
            }
            if round == 0 {
                times.iter_mut().for_each(Vec::clear);
                began = Stamp::now();
                break;
            }
        }
    }
    Ok(times)
}
