//! `lapwing engine bench`: a model's forward passes, timed one by one, and what this machine could do at best.

mod rows;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use self::rows::{ColdStart, PeaksRow, Row, Run, Work};
use super::cli::{BenchArgs, Device, Numbers, Runs};
use super::error::ToolError;
use super::machine;
use super::made_up;
use super::shapes::{Asked, Shape};
use crate::engine::Model;
use crate::engine::cpu::peaks::Peaks;
use crate::engine::cpu::threads::Threads;
use crate::engine::cpu::{self, Precision};
use crate::engine::model::{By, Options, Workspace};
use crate::engine::onnx::Graph;
use crate::engine::plan::{Arena, Plan, Size};
use crate::engine::quant::calibration::Calibration;
use crate::engine::roofline::Roofline;
use crate::engine::tensor::Tensor;
use crate::engine::{fuse, lower};
use crate::ledger::Stamp;

const BATCH: &[u64] = &[1, 32];
const LENGTH: &[u64] = &[64];
/// Forward passes of a case, however long they take.
const LEAST_RUNS: usize = 5;
/// Forward passes before a case is timed.
const WARM_RUNS: usize = 3;
const SEED: u64 = 17;

/// Measures what `args` ask for; rows come as they are measured.
pub(super) fn run(args: &BenchArgs, out: &mut (dyn Write + Send)) -> Result<(), ToolError> {
    if args.device == Device::Cuda {
        return Err(ToolError::argument("device", "cuda: the GPU executor is not in this version"));
    }
    if args.calibration.is_some() && args.precision == Numbers::Fp32 {
        return Err(ToolError::argument("calibration", "needs --precision int8"));
    }
    if args.precision == Numbers::Int8 && args.executor == Runs::Tract {
        return Err(ToolError::argument("precision", "int8 needs a plan; tract runs no model in 8 bits"));
    }
    let mut counts = args.threads.clone();
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let threads = machine::threads(count, args.cpus.as_ref())?;
        machine::apart(&threads, args.cpus.as_ref(), || group(args, &threads, out))?;
    }
    Ok(())
}

/// All cases with these threads.
fn group(args: &BenchArgs, threads: &Arc<Threads>, out: &mut (dyn Write + Send)) -> Result<(), ToolError> {
    let plan = cpu::Options { threads: Arc::clone(threads), ..cpu::Options::default() };
    let mut workspace = Workspace::default();
    let loaded = Loaded::new(args, plan.clone())?;
    let model = &loaded.model;
    let asked = Asked { batch: &args.batch, length: &args.length, batch_default: BATCH, length_default: LENGTH };
    let shapes = asked.shapes(model)?;
    let first = forward(model, &mut workspace, &loaded.inputs(shapes[0])?)?;
    let peaks = Peaks::of(&plan).map_err(ToolError::told)?;
    let run = Run {
        model: super::name_of(&args.model),
        device: "cpu",
        executor: model.executor(),
        precision: model.precision(),
        threads: threads.count(),
        cpu_flags: machine::cpu_flags(),
    };
    let peaks_row = PeaksRow::new(&run, &plan, &peaks);
    let cold = ColdStart::new(&run, shapes[0], loaded.load_ns, first);
    if args.json {
        super::line(out, &peaks_row)?;
        super::line(out, &cold)?;
    } else {
        table::head(&run, &peaks_row, &cold, model, out)?;
    }
    let mut one = HashMap::new();
    for shape in shapes {
        let inputs = loaded.inputs(shape)?;
        let times = times(model, &mut workspace, &inputs, args.seconds)?;
        let p50 = machine::percentile(&times, 0.5);
        if shape.batch == 1 {
            one.insert(shape.length, p50);
        }
        let row = Row::new(&run, shape, &times, &loaded.work(shape, &peaks), one.get(&shape.length).copied());
        if args.json { super::line(out, &row)? } else { table::row(&row, out)? }
    }
    Ok(())
}

/// A model that is ready, with what is asked of its graph.
struct Loaded {
    model: Model,
    graph: Graph,
    /// The model's plan where tract runs it, for what it says of inputs.
    other: Option<Plan>,
    load_ns: u64,
}

impl Loaded {
    fn new(args: &BenchArgs, mut plan: cpu::Options) -> Result<Self, ToolError> {
        let began = Stamp::now();
        let graph = Graph::read(&args.model)?;
        let copy = graph.clone();
        if args.precision == Numbers::Int8 {
            plan.precision = match &args.calibration {
                Some(file) => Calibration::read(file).and_then(|found| found.precision(&graph)).map_err(ToolError::told)?,
                None => Precision::Int8(Vec::new()),
            };
        }
        let by = if args.executor == Runs::Tract { By::Tract } else { By::Auto };
        let model = Model::new(graph, &Options { by, plan })?;
        let load_ns = began.elapsed();
        let other = if model.plan().is_some() { None } else { lowered(&copy) };
        Ok(Self { model, graph: copy, other, load_ns })
    }

    fn inputs(&self, shape: Shape) -> Result<Vec<Tensor>, ToolError> {
        let mut inputs = made_up::inputs(self.model.inputs(), self.model.plan().or(self.other.as_ref()), shape, SEED);
        self.model.accept(&mut inputs)?;
        Ok(inputs)
    }

    /// What a batch has to do. Of a model that tract runs, FLOPs are known at most.
    fn work(&self, shape: Shape, peaks: &Peaks) -> Work {
        let Some(executor) = self.model.plan_executor() else {
            return Work { flops: self.graph.flops(shape.batch, shape.length.unwrap_or(1)), min_bytes: None, roofline: None };
        };
        let size = Size::uniform(shape.batch, shape.length.unwrap_or(1));
        let total = executor.total(size);
        // what a run goes through again and again: weights that are touched, inputs and outputs, and what lies between
        let held = usize::try_from(total.min_bytes).unwrap_or(usize::MAX);
        let ceiling = peaks.ceiling(held.saturating_add(Arena::new(executor.plan(), size).bytes()));
        let nodes = (0..executor.plan().nodes.len()).map(|at| (executor.multiplies_in(at), executor.cost(at, size)));
        let roofline = Roofline::of(nodes, &ceiling);
        Work { flops: Some(roofline.flops), min_bytes: Some(total.min_bytes), roofline: Some(roofline) }
    }
}

fn lowered(graph: &Graph) -> Option<Plan> {
    let mut plan = lower::lower(&graph.typed).ok()?;
    fuse::fuse(&mut plan);
    Some(plan)
}

/// One forward pass, in nanoseconds: neither laying inputs end to end nor cutting outputs apart is in it.
fn forward(model: &Model, workspace: &mut Workspace, inputs: &[Tensor]) -> Result<u64, ToolError> {
    Ok(model.run(workspace, &[inputs])?.forward_ns)
}

/// Times of forward passes, sorted, after some that do not count.
fn times(model: &Model, workspace: &mut Workspace, inputs: &[Tensor], seconds: f64) -> Result<Vec<u64>, ToolError> {
    let budget_ns = (seconds * 1e9) as u64;
    let began = Stamp::now();
    for run in 0.. {
        if run >= WARM_RUNS && began.elapsed() >= budget_ns / 10 {
            break;
        }
        forward(model, workspace, inputs)?;
    }
    let mut times = Vec::with_capacity(1 << 16);
    let began = Stamp::now();
    while times.len() < LEAST_RUNS || began.elapsed() < budget_ns {
        times.push(forward(model, workspace, inputs)?);
    }
    times.sort_unstable();
    Ok(times)
}
