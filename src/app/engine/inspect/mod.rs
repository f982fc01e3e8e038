//! `lapwing engine inspect`: describes a model's file, what runs it, and its cost by shape. It runs nothing
//! but the few calls by which a model is held against ONNX Runtime.

mod about;
#[cfg(feature = "cuda")]
mod launches;
mod listing;
mod plan_json;
#[cfg(test)]
mod tests;
#[cfg(not(feature = "cuda"))]
mod without_gpu;
#[cfg(not(feature = "cuda"))]
use without_gpu as launches;

use std::collections::BTreeMap;
use std::io::Write;

use self::about::{About, Costs, Library, RefusedNode, Tensor, size};
use super::cli::InspectArgs;
use super::error::ToolError;
use super::numbers::{si, whole};
use super::output;
use super::shapes::{Asked, Shape};
use crate::app::trial::{self, LoadLimits, Trial};
use lapwing_engine::onnxruntime::{LibraryError, Runtime};
use lapwing_model::{Device, Model, ModelOptions, NotUsed, ProviderChoice};
use lapwing_onnx::OnnxFile;
use lapwing_onnx::UnsupportedNode;
use lapwing_onnx::tensor::TensorSpec;
use lapwing_plan::plan::{Arena, Plan};

const BATCH: &[u64] = &[1, 32];
const LENGTH: &[u64] = &[16, 128];

/// Writes the requested description to `out`.
pub(crate) fn run(args: &InspectArgs, out: &mut dyn Write) -> Result<(), ToolError> {
    let onnxruntime = args.ort_lib.find(args.ort_provider).map_err(|error| ToolError::argument("ort-lib", error.to_string()))?;
    let (backend, provider) = (args.executor, args.ort_provider);
    let options = ModelOptions { backend, onnxruntime, provider, verify: true, measure: true, ..ModelOptions::default() };
    let tried = trial::load(&args.model, &Trial::of(LoadLimits::default(), &options, &args.shapes)).map_err(ToolError::told)?;
    let file = OnnxFile::read(&args.model)?.with_shapes(&args.shapes)?;
    let asked = Asked { batch: &args.batch, length: &args.length, batch_default: BATCH, length_default: LENGTH };
    let options = ModelOptions { unreadable: tried.unreadable, batch_trial: Some(tried.batch_trial), ..options };
    let model = match tried.verification {
        Some(verification) => {
            Model::of(&file, &ModelOptions { verify: false, ..options.clone() })?.with_verification(verification)
        }
        None => Model::of(&file, &options)?,
    };
    // what ends a trial is not imported for its cost either
    let graph = if options.unreadable.is_none() { file.graph().ok() } else { None };
    let shapes = asked.shapes(&model)?;
    let costs = shapes.iter().map(|shape| match model.plan() {
        Some(plan) => planned(plan, *shape),
        None => counted(&model, *shape),
    });
    let of_graph = || graph.as_ref().map(|graph| graph.parameters);
    let parameters = model.plan().map(Plan::parameters).or_else(of_graph);
    let about = About {
        model: output::name_of(&args.model),
        opset: file.opset,
        producer: file.producer.clone(),
        operators: file.operators.iter().cloned().collect(),
        executor: model.executor().name(),
        refused: model.unsupported().map(refused),
        not_used: model.not_used().iter().map(not_used).collect(),
        notes: model.notes().to_vec(),
        verification: model.verification().to_string(),
        measured: model.measured().clone(),
        batch_axis: model.batch_axis().to_string(),
        onnxruntime: options.onnxruntime.as_ref().map(|found| library(found, options.provider)),
        parameters,
        parameter_bytes: parameters.map(|parameters| 4 * parameters),
        inputs: model.inputs().iter().map(tensor).collect(),
        outputs: model.outputs().iter().map(tensor).collect(),
        shapes: costs.collect(),
    };
    let on_gpu = matches!(args.device, Device::Cuda(_));
    if on_gpu && !args.plan {
        return Err(ToolError::argument("device", "cuda is told of with --plan"));
    }
    match (args.plan, args.json) {
        (false, true) => output::line(out, &about),
        (true, true) => {
            let plan = plan_of(&model)?;
            let more = if on_gpu { launches::fields(plan, shapes[0], args)? } else { serde_json::Map::new() };
            plan_json::write(&about, plan, shapes[0], more, out)
        }
        (plan, false) => {
            write_facts(&about, &file.operators, out)?;
            match (plan, model.plan()) {
                (true, Some(plan)) if on_gpu => {
                    listing::write(plan, shapes[0], out)?;
                    launches::table(plan, shapes[0], args, out)
                }
                (true, Some(plan)) => listing::write(plan, shapes[0], out),
                (true, None) if on_gpu => plan_of(&model).map(drop),
                _ => Ok(()),
            }
        }
    }
}

/// The plan that `--plan --json` asks for.
fn plan_of(model: &Model) -> Result<&Plan, ToolError> {
    let refused = || model.unsupported().map_or_else(String::new, UnsupportedNode::to_string);
    model.plan().ok_or_else(|| ToolError::argument("plan", format!("the model has none: {}", refused())))
}

fn planned(plan: &Plan, shape: Shape) -> Costs {
    let total = plan.total(size(shape));
    let cost = total.cost;
    Costs {
        batch: shape.batch,
        length: shape.length,
        flops: Some(cost.flops),
        other_ops: Some(cost.other_ops),
        bytes: Some(cost.bytes),
        min_bytes: Some(total.min_bytes),
        arena_bytes: Some(Arena::new(plan, size(shape)).bytes() as u64),
        arithmetic_intensity: (cost.bytes > 0).then(|| cost.flops as f64 / cost.bytes as f64),
        not_counted: BTreeMap::new(),
    }
}

/// The cost of a model without a plan, counted from its graph.
fn counted(model: &Model, shape: Shape) -> Costs {
    let unknown = Costs { batch: shape.batch, length: shape.length, ..Costs::default() };
    let Some(work) = model.work(shape.batch, shape.length.unwrap_or(1)) else { return unknown };
    let is_whole = work.uncounted.is_empty();
    Costs {
        flops: (!work.misses_products).then_some(work.flops),
        other_ops: is_whole.then_some(work.other_ops),
        bytes: is_whole.then_some(work.bytes),
        min_bytes: Some(work.min_bytes),
        arithmetic_intensity: (is_whole && work.bytes > 0).then(|| work.flops as f64 / work.bytes as f64),
        not_counted: work.uncounted,
        ..unknown
    }
}

fn refused(refused: &UnsupportedNode) -> RefusedNode {
    RefusedNode { node: refused.node.clone(), operator: refused.operator.clone(), reason: refused.reason.clone() }
}

fn not_used(not_used: &NotUsed) -> about::NotUsed {
    about::NotUsed { executor: not_used.executor.name(), reason: not_used.reason.clone() }
}

fn library(found: &Result<Runtime, LibraryError>, provider: ProviderChoice) -> Library {
    match found {
        Ok(runtime) => Library {
            path: Some(runtime.path().display().to_string()),
            version: Some(runtime.version().to_owned()),
            origin: Some(runtime.origin()),
            passed_over: runtime.passed_over().to_vec(),
            unused_providers: provider.unused(runtime),
            missing: None,
        },
        Err(error) => Library { missing: Some(error.to_string()), ..Library::default() },
    }
}

fn tensor(port: &TensorSpec) -> Tensor {
    let length = |length: &Option<usize>| length.and_then(|length| i64::try_from(length).ok()).unwrap_or(-1);
    Tensor { name: port.name.clone(), datatype: port.datatype.name(), shape: port.shape.iter().map(length).collect() }
}

/// Writes a line; what a file or a library has in its words is escaped.
fn fact(out: &mut dyn Write, head: &str, text: impl std::fmt::Display) -> Result<(), ToolError> {
    Ok(writeln!(out, "{head:<12} {}", output::shown(text))?)
}

/// Writes who runs the model and why not the others.
fn write_executors(about: &About, out: &mut dyn Write) -> Result<(), ToolError> {
    match &about.refused {
        None => fact(out, "runs by", "its plan")?,
        Some(why) => {
            let reason = format!("{}; no plan for {} ({}): {}", about.executor, why.node, why.operator, why.reason);
            fact(out, "runs by", reason)?;
        }
    }
    let mut others = about.not_used.iter().filter(|other| other.executor != "plan" || about.refused.is_none());
    others.try_for_each(|other| fact(out, "not by", format!("{}: {}", other.executor, other.reason)))?;
    about.notes.iter().try_for_each(|note| fact(out, "note", note))?;
    fact(out, "verified", &about.verification)?;
    if about.measured.ratio().is_some() {
        fact(out, "measured", &about.measured)?;
    }
    fact(out, "batch axis", &about.batch_axis)?;
    match &about.onnxruntime {
        None => fact(out, "ONNX Runtime", "off (--ort-lib)"),
        Some(Library { missing: Some(reason), .. }) => fact(out, "ONNX Runtime", format!("none: {reason}")),
        Some(Library { path, version, origin, passed_over, unused_providers, .. }) => {
            let known = |text: &Option<String>| text.clone().unwrap_or_default();
            fact(out, "ONNX Runtime", format!("{}, {} ({})", known(version), known(path), origin.unwrap_or_default()))?;
            if !unused_providers.is_empty() {
                fact(out, "", format!("not used: {}", unused_providers.join(", ")))?;
            }
            passed_over.iter().try_for_each(|reason| fact(out, "", format!("passed over: {reason}")))
        }
    }
}

fn write_facts(about: &About, operators: &[(String, usize)], out: &mut dyn Write) -> Result<(), ToolError> {
    let nodes: usize = operators.iter().map(|(_, count)| count).sum();
    let named: Vec<String> = operators.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let producer = if about.producer.is_empty() { String::new() } else { format!(", written by {}", about.producer) };
    writeln!(out, "{}", output::shown(format!("{}: opset {}{producer}", about.model, about.opset)))?;
    fact(out, "operators", format!("{nodes}: {}", named.join(", ")))?;
    match (about.parameters, about.parameter_bytes) {
        (Some(parameters), Some(bytes)) => {
            fact(out, "parameters", format!("{} ({})", whole(parameters), si(bytes as f64, "B")))?;
        }
        _ => fact(out, "parameters", "not counted")?,
    }
    for (what, tensors) in [("inputs", &about.inputs), ("outputs", &about.outputs)] {
        let listed: Vec<String> = tensors.iter().map(|t| format!("{} {} {:?}", t.name, t.datatype, t.shape)).collect();
        fact(out, what, listed.join(", "))?;
    }
    write_executors(about, out)?;
    writeln!(
        out,
        "\n{:>6}{:>8}{:>15}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "batch", "length", "FLOPs", "other ops", "bytes", "min bytes", "arena", "FLOP/byte"
    )?;
    for costs in &about.shapes {
        let amount = |amount: Option<u64>, unit: &str| amount.map_or("-".to_owned(), |amount| si(amount as f64, unit));
        let length = costs.length.map_or("-".to_owned(), |length| length.to_string());
        let flops = costs.flops.map_or("not counted".to_owned(), |flops| si(flops as f64, "FLOP"));
        let intensity = costs.arithmetic_intensity.map_or("-".to_owned(), |share| format!("{share:.2}"));
        writeln!(
            out,
            "{:>6}{length:>8}{flops:>15}{:>12}{:>12}{:>12}{:>12}{intensity:>12}",
            costs.batch,
            amount(costs.other_ops, ""),
            amount(costs.bytes, "B"),
            amount(costs.min_bytes, "B"),
            amount(costs.arena_bytes, "B"),
        )?;
        if !costs.not_counted.is_empty() {
            let named: Vec<String> = costs.not_counted.iter().map(|(operator, count)| format!("{operator} {count}")).collect();
            writeln!(out, "{:>14}not counted: {}", "", output::shown(named.join(", ")))?;
        }
    }
    Ok(())
}
