//! A plan as one JSON object. docs/ENGINE.md documents the fields; their names are stable.

use crate::app::engine::output;
use std::io::Write;

use serde_json::{Map, Value, json};

use super::super::error::ToolError;
use super::super::shapes::Shape;
use super::about::{About, size};
use lapwing_plan::plan::{Angles, Arena, Columns, ElementType, Instruction, Lookup, Op, Plan, PlanPort, Program, Rows};

/// Writes the plan with the cost of its nodes at one shape, and then the fields of `more`.
pub(crate) fn write(
    about: &About,
    plan: &Plan,
    shape: Shape,
    more: Map<String, Value>,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let total = plan.total(size(shape));
    let port = |port: &PlanPort| json!({ "name": port.name, "value": port.value.0, "features": port.features });
    let values =
        plan.values.iter().map(|value| json!({ "rows": rows(value.rows), "width": value.width, "type": kind(value.kind) }));
    let weights = plan.weights.iter().map(|w| json!({ "name": w.name, "rows": w.rows, "width": w.width }));
    let mut object = json!({
        "model": about.model,
        "executor": about.executor,
        "opset": about.opset,
        "batch": shape.batch,
        "length": shape.length,
        "inputs": plan.inputs.iter().map(port).collect::<Vec<_>>(),
        "outputs": plan.outputs.iter().map(port).collect::<Vec<_>>(),
        "nodes": (0..plan.nodes.len()).map(|place| node(plan, place, shape)).collect::<Vec<_>>(),
        "values": values.collect::<Vec<_>>(),
        "weights": weights.collect::<Vec<_>>(),
        "totals": {
            "flops": total.cost.flops,
            "other_ops": total.cost.other_ops,
            "bytes": total.cost.bytes,
            "min_bytes": total.min_bytes,
            "arena_bytes": Arena::new(plan, size(shape)).bytes(),
            "parameters": plan.parameters(),
        },
    });
    if let Value::Object(object) = &mut object {
        object.extend(more);
    }
    output::line(out, &object)
}

const fn rows(rows: Rows) -> &'static str {
    match rows {
        Rows::Batch => "batch",
        Rows::Token => "token",
        Rows::Past => "past",
        Rows::Context => "context",
    }
}

const fn kind(kind: ElementType) -> &'static str {
    match kind {
        ElementType::F32 => "FP32",
        ElementType::I64 => "INT64",
        ElementType::I32 => "INT32",
        ElementType::Bool => "BOOL",
    }
}

fn node(plan: &Plan, place: usize, shape: Shape) -> Value {
    let node = &plan.nodes[place];
    let (made, cost) = (plan.value(node.output), plan.cost(node, size(shape)));
    let mut object = Map::new();
    let common = json!({
        "name": node.name,
        "op": node.op.name(),
        "reads": node.op.reads().iter().map(|id| id.0).collect::<Vec<_>>(),
        "output": node.output.0,
        "rows": rows(made.rows),
        "width": made.width,
        "weights": node.op.weights().iter().map(|id| id.0).collect::<Vec<_>>(),
        "flops": cost.flops,
        "other_ops": cost.other_ops,
        "bytes": cost.bytes,
    });
    for part in [common, attributes(&node.op)] {
        if let Value::Object(part) = part {
            object.extend(part);
        }
    }
    Value::Object(object)
}

/// The fields that only one kind of node has.
fn attributes(op: &Op) -> Value {
    let columns = |columns: &Columns| json!({ "value": columns.value.0, "from": columns.from });
    match op {
        Op::Gemm { x, weight, bias, activation, residual } => json!({
            "x": x.0,
            "weight": weight.0,
            "bias": bias.map(|id| id.0),
            "activation": snake(&format!("{activation:?}")),
            "residual": residual.map(|id| id.0),
        }),
        Op::Embed { tables, norm } => json!({
            "tables": tables.iter().map(|(table, lookup)| match lookup {
                Lookup::Id(id) => json!({ "weight": table.0, "ids": columns(id) }),
                Lookup::Position(from) => json!({ "weight": table.0, "position_from": from }),
            }).collect::<Vec<_>>(),
            "epsilon": norm.map(|norm| norm.epsilon),
            "scale": norm.and_then(|norm| norm.scale).map(|id| id.0),
            "shift": norm.and_then(|norm| norm.shift).map(|id| id.0),
        }),
        Op::LayerNorm { x, residual, epsilon, scale, shift } => json!({
            "x": x.0,
            "residual": residual.map(|id| id.0),
            "epsilon": epsilon,
            "scale": scale.map(|id| id.0),
            "shift": shift.map(|id| id.0),
        }),
        Op::RmsNorm { epsilon, scale, .. } => json!({ "epsilon": epsilon, "scale": scale.map(|id| id.0) }),
        Op::Attention { q, k, v, heads, key_heads, head, head_out, scale, bias, by_distance, is_zero_if_masked } => json!({
            "q": columns(q),
            "k": columns(k),
            "v": columns(v),
            "heads": heads,
            "key_heads": key_heads,
            "head": head,
            "head_out": head_out,
            "factor": scale,
            "bias": bias.map(|id| id.0),
            "by_distance": by_distance.map(|id| id.0),
            "is_zero_if_masked": is_zero_if_masked,
        }),
        Op::Rotate { x, heads, head, angles } => json!({
            "x": columns(x),
            "heads": heads,
            "head": head,
            "by_token": matches!(angles, Angles::ByToken { .. }),
            "cos": match angles {
                Angles::ByPosition { cos, .. } => cos.0,
                Angles::ByToken { cos, .. } => cos.0,
            },
            "sin": match angles {
                Angles::ByPosition { sin, .. } => sin.0,
                Angles::ByToken { sin, .. } => sin.0,
            },
        }),
        Op::Append { past, new, heads, head } => json!({
            "past": past.0,
            "new": columns(new),
            "heads": heads,
            "head": head,
        }),
        Op::Map { program, .. } => json!({ "program": steps(program) }),
        Op::Reduce { fold, .. } | Op::Pool { fold, .. } => json!({ "fold": snake(&format!("{fold:?}")) }),
        Op::MeanPool { x, weights, at_least } => json!({ "x": x.0, "counts": weights.0, "at_least": at_least }),
        Op::Slice(from) => json!({ "from": from.from }),
        Op::Softmax(_) | Op::CumSum(_) | Op::Concat(_) => json!({}),
    }
}

/// A program, one text per step: `%2` is the result of step 2, `arg 0` the first of `reads`, `weight 3` the weight at place 3.
fn steps(program: &Program) -> Vec<String> {
    let step = |step: &Instruction| match step {
        Instruction::Arg(place) => format!("arg {place}"),
        Instruction::Weight(id) => format!("weight {}", id.0),
        Instruction::Scalar(number) => format!("number {number:?}"),
        Instruction::Unary(op, x) => format!("{} %{x}", snake(&format!("{op:?}"))),
        Instruction::Binary(op, a, b) => format!("{} %{a} %{b}", snake(&format!("{op:?}"))),
        Instruction::Where(a, b, c) => format!("where %{a} %{b} %{c}"),
        Instruction::Fold(fold, x) => format!("row_{} %{x}", snake(&format!("{fold:?}"))),
    };
    program.code().iter().map(step).collect()
}

/// `gelu_tanh` of `GeluTanh`.
fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}
