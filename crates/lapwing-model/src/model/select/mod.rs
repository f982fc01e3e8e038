//! Chooses a model's executor: its plan where it has one, or that of a classical model, else ONNX Runtime where its library is found, else
//! rten; or the one that was named.

use std::sync::Arc;

use super::executor::{Executor, ExecutorName};
use super::first_difference;
use super::measured::{Measured, measure};
use super::onnxruntime::{self, OnnxRuntimeExecutor};
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
use crate::choice::Backend;
use lapwing_engine::onnxruntime::Session;
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
            let session = onnxruntime::session(file, options).map_err(|reason| cannot(ExecutorName::OnnxRuntime, reason))?;
            let node = asked_for("onnxruntime");
            let fallback = plan_on_gpu::without_plan(&node, options)?;
            Selected::new(OnnxRuntimeExecutor::new(session, file, fallback), Some(node))
        }
    };
    let chosen = if options.verify { verified(chosen, file, options)? } else { chosen };
    Ok(if options.measure { faster(chosen, file, options) } else { chosen })
}

/// The executor with its time beside ONNX Runtime's, or ONNX Runtime if that takes less time and any executor will do. What runs on a GPU
/// stays there.
fn faster(chosen: Selected, file: Option<&OnnxFile>, options: &ModelOptions) -> Selected {
    let name = chosen.executor.name();
    let is_compared = name != ExecutorName::OnnxRuntime && chosen.executor.gpu_executor().is_none();
    if !is_compared || matches!(options.plan.precision, CpuPrecision::Int8(_)) {
        return chosen;
    }
    let Ok(session) = onnxruntime::session(file, options) else { return chosen };
    let measured = measure(&*chosen.executor, &session);
    if !measured.is_slower() || options.backend != Backend::Auto {
        return Selected { measured, ..chosen };
    }
    let verification = chosen.verification.clone();
    Selected {
        verification,
        ..moved(Selected { measured: measured.clone(), ..chosen }, session, file, format!("it takes {measured}"))
    }
}

/// ONNX Runtime in place of what was chosen, and why.
fn moved(chosen: Selected, session: Session, file: Option<&OnnxFile>, reason: String) -> Selected {
    let fallback = chosen.executor.placement().fallback.clone();
    let node = UnsupportedNode { node: "model".into(), operator: "graph".into(), reason: reason.clone() };
    let made = Selected::new(OnnxRuntimeExecutor::new(session, file, fallback), Some(chosen.unsupported.unwrap_or(node)));
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
    let selected = match (onnxruntime::session(file, options), file) {
        (Ok(session), _) => Selected::new(OnnxRuntimeExecutor::new(session, file, fallback), Some(node)),
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
    let made = match file.and_then(OnnxFile::graph_of_any_rows) {
        None => plan(graph),
        Some(Ok(of_any_rows)) => plan(&of_any_rows),
        Some(Err(error)) => {
            let reason = format!("its number of rows is fixed: {error}");
            Err(UnsupportedNode { node: "model".into(), operator: "import".into(), reason })
        }
    };
    let plan = match made {
        Ok(plan) => plan,
        Err(node) => return Ok(Err(node)),
    };
    let (plan, fallback) = match plan_on_gpu::place(plan, ports, options)? {
        Placing::Placed(gpu) => return Ok(Ok(Selected::new(gpu, None))),
        Placing::NotPlaced(plan, fallback) => (plan, fallback),
    };
    let made = PlanOnCpu::new(plan, ports.clone(), options.plan.clone(), fallback);
    Ok(made.map(|cpu| Selected::new(cpu, None)).map_err(|e| UnsupportedNode {
        node: e.node,
        operator: "plan".into(),
        reason: e.reason,
    }))
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
    if name == ExecutorName::OnnxRuntime {
        chosen.verification = Verification::NotCompared("ONNX Runtime runs it itself".to_owned());
        return Ok(chosen);
    }
    if matches!(options.plan.precision, CpuPrecision::Int8(_)) {
        chosen.verification = Verification::NotCompared("int8 differs by its own contract (docs/ENGINE.md)".to_owned());
        return Ok(chosen);
    }
    let session = match onnxruntime::session(file, options) {
        Ok(session) => session,
        Err(reason) => {
            chosen.verification = Verification::NotCompared(reason);
            return Ok(chosen);
        }
    };
    let difference = match verify::compare(&*chosen.executor, &session, file) {
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
    Ok(Selected { verification, ..moved(chosen, session, file, difference) })
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
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::super::batch::BatchResult;
    use super::super::executor::Workspace;
    use super::*;
    use lapwing_engine::onnxruntime::Runtime;
    use lapwing_engine::placement::Placement;
    use lapwing_onnx::tensor::{Tensor, TensorSpec};

    /// Another executor with a pause before each run.
    #[derive(Debug)]
    struct Slow(Box<dyn Executor>);

    impl Executor for Slow {
        fn name(&self) -> ExecutorName {
            self.0.name()
        }

        fn inputs(&self) -> &[TensorSpec] {
            self.0.inputs()
        }

        fn outputs(&self) -> &[TensorSpec] {
            self.0.outputs()
        }

        fn placement(&self) -> Arc<Placement> {
            self.0.placement()
        }

        fn plan(&self) -> Option<&Plan> {
            self.0.plan()
        }

        fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]], wanted: &[bool]) -> Result<BatchResult, EngineError> {
            std::thread::sleep(Duration::from_millis(20));
            self.0.run(workspace, calls, wanted)
        }
    }

    #[test]
    fn onnxruntime_runs_what_takes_another_longer() {
        let Some(folder) = lapwing_testing::onnxruntime() else { return };
        let runtime = Runtime::find(Some(&folder)).unwrap();
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let file = OnnxFile::read(&root.join("tests/fixtures/plans/mlp-3.onnx")).unwrap();
        let of = |backend| ModelOptions { backend, onnxruntime: Some(Ok(runtime.clone())), ..ModelOptions::default() };
        let chosen = |backend| {
            let chosen = select(Some(&file), || file.graph(), &of(backend)).unwrap();
            assert_eq!((chosen.executor.name(), &chosen.measured.calls[..]), (ExecutorName::Plan, &[][..]));
            Selected { executor: Box::new(Slow(chosen.executor)), ..chosen }
        };
        let moved = faster(chosen(Backend::Auto), Some(&file), &of(Backend::Auto));
        assert_eq!(moved.executor.name(), ExecutorName::OnnxRuntime);
        let [NotUsed { executor: ExecutorName::Plan, reason }] = &moved.not_used[..] else { panic!("{:?}", moved.not_used) };
        assert!(reason.starts_with("it takes ") && reason.contains(" of ONNX Runtime's time (1 row: "), "{reason}");
        assert_eq!(moved.measured.calls.iter().map(|call| call.rows).collect::<Vec<_>>(), [1, 16]);
        // an executor that was named stays, and its time is known
        let named = faster(chosen(Backend::Plan), Some(&file), &of(Backend::Plan));
        assert_eq!((named.executor.name(), named.measured.calls.len()), (ExecutorName::Plan, 2));
        assert!(named.measured.calls.iter().all(|call| call.executor_ns >= 20_000_000), "{:?}", named.measured);
    }
}
