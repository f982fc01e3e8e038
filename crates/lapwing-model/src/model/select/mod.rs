//! Chooses a model's executor: its plan where it has one, or that of a classical model, else ONNX Runtime where its library is found, else
//! rten; or the one that was named.

use std::sync::Arc;

use super::executor::{Executor, ExecutorName};
use super::first_difference;
use super::half_ports::HalfPorts;
use super::measured::{Measured, measure};
use super::onnxruntime::{self, OnnxRuntimeExecutor, Serving};
use super::options::{ModelOptions, Placing};
use super::plan_on_cpu::PlanOnCpu;
#[cfg(feature = "cuda")]
use super::plan_on_gpu;
use super::ports::Ports;
use super::rten::RtenExecutor;
use super::tabular::{self, TabularExecutor};
use super::verify::{self, Verification};
#[cfg(not(feature = "cuda"))]
use super::without_gpu as plan_on_gpu;
use crate::choice::{Backend, ProviderChoice};
use lapwing_onnx::OnnxFile;
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_onnx::{EngineError, UnsupportedNode};
use lapwing_plan::exec::CpuPrecision;
use lapwing_plan::lower::lower;
use lapwing_plan::plan::Plan;
use lapwing_tabular::TabularModel;

/// An executor that does not run a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUsed {
    /// Its name.
    pub executor: ExecutorName,
    /// Why not.
    pub reason: String,
}

/// What runs a model, and why.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) executor: Box<dyn Executor>,
    /// The node that prevents a plan.
    pub(crate) unsupported: Option<UnsupportedNode>,
    /// The executors that were tried before it.
    pub(crate) not_used: Vec<NotUsed>,
    /// What came of holding it against ONNX Runtime.
    pub(crate) verification: Verification,
    /// What it takes beside ONNX Runtime.
    pub(crate) measured: Measured,
}

impl Selected {
    fn new(executor: impl Executor + 'static, unsupported: Option<UnsupportedNode>) -> Self {
        let verification = Verification::NotCompared("engine.verify is off".to_owned());
        Self { executor: Box::new(executor), unsupported, not_used: Vec::new(), verification, measured: Measured::default() }
    }

    fn instead_of(mut self, executor: ExecutorName, reason: String) -> Self {
        self.not_used.insert(0, NotUsed { executor, reason });
        self
    }
}

/// Prepares a model for an executor. `file` is where it comes from, if it comes from a file, and `graph` what plans are made of.
///
/// # Errors
///
/// [`EngineError::Model`] if no executor can run it, [`EngineError::Executor`] if the one that was named cannot, or answers otherwise than ONNX
/// Runtime; [`EngineError::NoPlan`] if a plan is required and there is none.
pub(crate) fn select(
    file: Option<&OnnxFile>,
    graph: impl FnOnce() -> Result<Arc<ShapedGraph>, EngineError>,
    options: &ModelOptions,
) -> Result<Selected, EngineError> {
    let chosen = match options.backend {
        Backend::Auto => {
            let unreadable = options.unreadable.as_ref().map(|reason| EngineError::part("graph", reason));
            auto(file, || unreadable.map_or_else(graph, Err), options)?
        }
        Backend::Plan => plan_alone(file, &*graph()?, options)?,
        Backend::Tabular => {
            let made = file.ok_or_else(|| asked_for("tabular")).and_then(|file| classical(file, options));
            made.map_err(|node| cannot(ExecutorName::Tabular, node.to_string()))??
        }
        Backend::Rten => {
            let file =
                file.ok_or_else(|| cannot(ExecutorName::Rten, "it reads files, and the model was given as a graph".to_owned()))?;
            rten(file, Ports::declared(file)?, asked_for("rten"), options)?
        }
        Backend::OnnxRuntime => {
            let serving = onnxruntime::serving(file, options).map_err(|reason| cannot(ExecutorName::OnnxRuntime, reason))?;
            let node = asked_for("onnxruntime");
            let fallback = plan_on_gpu::without_plan(&node, options)?;
            Selected::new(OnnxRuntimeExecutor::new(serving, file, fallback), Some(node))
        }
    };
    let chosen = if options.verify { verified(chosen, file, options)? } else { chosen };
    Ok(if options.measure { faster(chosen, file, options) } else { chosen })
}

/// The executor with its time beside ONNX Runtime's, or ONNX Runtime if that takes less time and any executor will do. What runs on a GPU
/// stays there.
fn faster(chosen: Selected, file: Option<&OnnxFile>, options: &ModelOptions) -> Selected {
    let name = chosen.executor.name();
    let is_compared = name != ExecutorName::OnnxRuntime && chosen.executor.placement().device == "cpu";
    if !is_compared || matches!(options.plan.precision, CpuPrecision::Int8(_)) {
        return chosen;
    }
    let Ok(serving) = onnxruntime::serving(file, options) else { return chosen };
    let measured = measure(&*chosen.executor, &serving.session);
    let slower = format!("it takes {measured}");
    if !measured.is_slower() || options.backend != Backend::Auto {
        return Selected { measured, ..chosen };
    }
    let made = OnnxRuntimeExecutor::new(serving, file, chosen.executor.placement().fallback.clone());
    // a GPU's provider is held against the CPU's as any executor is
    let verification = if options.provider.is_gpus() {
        let reference = onnxruntime::reference(file, options);
        reference.map_or_else(Verification::NotCompared, |reference| verify::compare(&made, &reference, file))
    } else {
        chosen.verification.clone()
    };
    if let Verification::Differs(difference) = verification {
        let not_used = NotUsed { executor: ExecutorName::OnnxRuntime, reason: format!("by {}: {difference}", options.provider) };
        return Selected { measured, not_used: [vec![not_used], chosen.not_used].concat(), ..chosen };
    }
    Selected { verification, ..moved(Selected { measured, ..chosen }, made, slower) }
}

/// ONNX Runtime in place of what was chosen, and why.
fn moved(chosen: Selected, made: OnnxRuntimeExecutor, reason: String) -> Selected {
    let node = UnsupportedNode { node: "model".into(), operator: "graph".into(), reason: reason.clone() };
    let made = Selected::new(made, Some(chosen.unsupported.unwrap_or(node)));
    Selected { measured: chosen.measured, ..made.instead_of(chosen.executor.name(), reason) }
}

/// The plan of a classical model; else what [`general`] chooses.
fn auto(
    file: Option<&OnnxFile>,
    graph: impl FnOnce() -> Result<Arc<ShapedGraph>, EngineError>,
    options: &ModelOptions,
) -> Result<Selected, EngineError> {
    let is_classical = !matches!(options.plan.precision, CpuPrecision::Int8(_));
    let Some(file) = file.filter(|file| is_classical && tabular::is_classical(file)) else {
        return general(file, graph(), options);
    };
    match classical(file, options) {
        Ok(selected) => selected,
        Err(node) => {
            let selected = general(Some(file), graph(), options).map_err(|error| not_classical(error, &node))?;
            Ok(selected.instead_of(ExecutorName::Tabular, node.to_string()))
        }
    }
}

/// A classical model's plan, or the node that prevents it.
///
/// # Errors
///
/// [`EngineError::Device`] where a GPU was named.
fn classical(file: &OnnxFile, options: &ModelOptions) -> Result<Result<Selected, EngineError>, UnsupportedNode> {
    let model = TabularModel::from_proto(&file.proto)?;
    let node = UnsupportedNode { node: "model".into(), operator: "graph".into(), reason: "it is a classical model".into() };
    let made = plan_on_gpu::without_plan(&node, options).map(|fallback| {
        let selected = Selected::new(TabularExecutor::new(model, fallback), Some(node.clone()));
        selected.instead_of(ExecutorName::Plan, node.to_string())
    });
    Ok(made)
}

/// The plan, else ONNX Runtime, else rten.
fn general(
    file: Option<&OnnxFile>,
    graph: Result<Arc<ShapedGraph>, EngineError>,
    options: &ModelOptions,
) -> Result<Selected, EngineError> {
    let readable = graph.and_then(|graph| Ok((Ports::of(&graph)?, graph)));
    let (ports, node) = match readable {
        Ok((ports, graph)) => match planned(file, &graph, &ports, options)? {
            Ok(selected) => return Ok(selected),
            Err(node) => (Ok(ports), node),
        },
        Err(error) => {
            let node = UnsupportedNode { node: "model".into(), operator: "import".into(), reason: error.to_string() };
            (Err(error), node)
        }
    };
    if matches!(options.plan.precision, CpuPrecision::Int8(_)) {
        return Err(ports.err().unwrap_or(EngineError::NoPlan(node)));
    }
    let fallback = plan_on_gpu::without_plan(&node, options)?;
    let why_no_plan = node.to_string();
    let selected = match (onnxruntime::serving(file, options), file) {
        (Ok(serving), _) => Selected::new(OnnxRuntimeExecutor::new(serving, file, fallback), Some(node)),
        // nothing runs elsewhere than where it was asked to
        (Err(reason), Some(_)) if options.provider.is_gpus() => return Err(cannot(ExecutorName::OnnxRuntime, reason)),
        (Err(_), None) => return Err(ports.err().unwrap_or(EngineError::NoPlan(node))),
        (Err(reason), Some(file)) => {
            // what is wrong with a graph is known before any call, and rten finds it at the first
            let made = ports.and_then(|ports| rten(file, ports, node, options));
            made.map_err(|error| neither(error, &reason, options))?.instead_of(ExecutorName::OnnxRuntime, reason)
        }
    };
    Ok(selected.instead_of(ExecutorName::Plan, why_no_plan))
}

/// The error of a classical model that no executor can run: what prevents its plan says more than that others have no such operators.
fn not_classical(error: EngineError, node: &UnsupportedNode) -> EngineError {
    match error {
        EngineError::Model { .. } => EngineError::part(
            format!("node {} ({})", node.node, node.operator),
            format!("{}; and no other executor can run it: {error}", node.reason),
        ),
        other => other,
    }
}

/// The error of a model that neither rten nor ONNX Runtime can run.
fn neither(error: EngineError, reason: &str, options: &ModelOptions) -> EngineError {
    match error {
        EngineError::Model { part, reason: of_rten } if options.onnxruntime.is_some() => {
            EngineError::Model { part, reason: format!("{of_rten}; and by ONNX Runtime it cannot be run: {reason}") }
        }
        other => other,
    }
}

fn plan_alone(file: Option<&OnnxFile>, graph: &ShapedGraph, options: &ModelOptions) -> Result<Selected, EngineError> {
    let ports = Ports::of(graph)?;
    planned(file, graph, &ports, options)?.map_err(|node| match options.plan.precision {
        CpuPrecision::Int8(_) => EngineError::NoPlan(node),
        CpuPrecision::Fp32 => cannot(ExecutorName::Plan, node.to_string()),
    })
}

/// A graph's plan on the requested GPU or on the CPU, or the node that prevents it. Plans are of any number of rows: where the `file` fixes
/// it, so is its plan, and the calls that it is given have the file's.
///
/// # Errors
///
/// [`EngineError::Device`] where it cannot run on the GPU and no fallback is allowed.
fn planned(
    file: Option<&OnnxFile>,
    graph: &ShapedGraph,
    ports: &Ports,
    options: &ModelOptions,
) -> Result<Result<Selected, UnsupportedNode>, EngineError> {
    let of_any_rows = match file.and_then(OnnxFile::graph_of_any_rows).transpose() {
        Ok(of_any_rows) => of_any_rows,
        Err(error) => {
            let reason = format!("its number of rows is fixed: {error}");
            return Ok(Err(UnsupportedNode { node: "model".into(), operator: "import".into(), reason }));
        }
    };
    let plan = match plan(of_any_rows.as_deref().unwrap_or(graph)) {
        Ok(plan) => plan,
        Err(node) => return Ok(Err(node)),
    };
    let single = ports.in_single_precision();
    let of_plan = single.as_ref().unwrap_or(ports);
    let (plan, fallback) = match plan_on_gpu::place(plan, of_plan, options)? {
        Placing::Placed(gpu) => return Ok(Ok(behind(ports, single.is_some(), gpu))),
        Placing::NotPlaced(plan, fallback) => (plan, fallback),
    };
    let made = PlanOnCpu::new(plan, of_plan.clone(), options.plan.clone(), fallback);
    Ok(made.map(|cpu| behind(ports, single.is_some(), cpu)).map_err(|e| UnsupportedNode {
        node: e.node,
        operator: "plan".into(),
        reason: e.reason,
    }))
}

/// A plan's executor behind the ports of its model.
fn behind(ports: &Ports, are_half: bool, plan: impl Executor + 'static) -> Selected {
    if are_half { Selected::new(HalfPorts::new(plan, ports.clone()), None) } else { Selected::new(plan, None) }
}

fn rten(file: &OnnxFile, ports: Ports, node: UnsupportedNode, options: &ModelOptions) -> Result<Selected, EngineError> {
    if matches!(options.plan.precision, CpuPrecision::Int8(_)) {
        return Err(EngineError::NoPlan(node));
    }
    let fallback = plan_on_gpu::without_plan(&node, options)?;
    Ok(Selected::new(RtenExecutor::new(file, ports, options, fallback)?, Some(node)))
}

/// The fused plan of a graph.
fn plan(graph: &ShapedGraph) -> Result<Plan, UnsupportedNode> {
    let mut plan = lower(graph)?;
    lapwing_plan::fuse::fuse(&mut plan);
    Ok(plan)
}

/// Holds the chosen executor against ONNX Runtime. Where they disagree, ONNX Runtime runs the model, if the executor was not named.
///
/// # Errors
///
/// [`EngineError::Executor`] where they disagree and the executor was named.
fn verified(mut chosen: Selected, file: Option<&OnnxFile>, options: &ModelOptions) -> Result<Selected, EngineError> {
    let name = chosen.executor.name();
    let is_onnxruntime = name == ExecutorName::OnnxRuntime;
    if is_onnxruntime && !options.provider.is_gpus() {
        chosen.verification = Verification::NotCompared("ONNX Runtime runs it itself".to_owned());
        return Ok(chosen);
    }
    if matches!(options.plan.precision, CpuPrecision::Int8(_)) {
        chosen.verification = Verification::NotCompared("int8 differs by its own contract (docs/ENGINE.md)".to_owned());
        return Ok(chosen);
    }
    let reference = match onnxruntime::reference(file, options) {
        Ok(reference) => reference,
        Err(reason) => {
            chosen.verification = Verification::NotCompared(reason);
            return Ok(chosen);
        }
    };
    let difference = match verify::compare(&*chosen.executor, &reference, file) {
        Verification::Differs(difference) if is_onnxruntime => format!("by {}: {difference}", options.provider),
        Verification::Differs(difference) => match file.and_then(|file| first_difference::find(file, name, options, &loaded)) {
            Some(node) => format!("{difference}; {node}"),
            None => difference,
        },
        verification => {
            chosen.verification = verification;
            return Ok(chosen);
        }
    };
    if options.backend != Backend::Auto {
        return Err(cannot(name, format!("{difference}; engine.verify: off serves it all the same")));
    }
    let verification = Verification::Differs(difference.clone());
    let serving = Serving { session: reference, provider: ProviderChoice::default() };
    let made = OnnxRuntimeExecutor::new(serving, file, chosen.executor.placement().fallback.clone());
    Ok(Selected { verification, ..moved(chosen, made, difference) })
}

/// The executor that options name, with a file; `None` if it cannot run it.
fn loaded(file: &OnnxFile, options: &ModelOptions) -> Option<Box<dyn Executor>> {
    select(Some(file), || file.graph(), options).ok().map(|selected| selected.executor)
}

fn cannot(executor: ExecutorName, reason: String) -> EngineError {
    EngineError::Executor { executor: executor.name(), reason }
}

/// Why a model of which another executor was asked has no plan.
fn asked_for(executor: &str) -> UnsupportedNode {
    UnsupportedNode { node: "model".into(), operator: "graph".into(), reason: format!("{executor} was requested") }
}

#[cfg(all(test, feature = "onnxruntime"))]
mod tests;
