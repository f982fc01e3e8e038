//! A plan as a table: one node per line, with its cost at one shape.

use std::io::Write;

use super::super::error::ToolError;
use super::super::numbers::si;
use super::super::output;
use super::super::shapes::Shape;
use super::about::size;
use lapwing_plan::plan::{Plan, Rows};

/// Writes the nodes in the order in which they run.
pub(crate) fn write(plan: &Plan, shape: Shape, out: &mut dyn Write) -> Result<(), ToolError> {
    let length = shape.length.map_or_else(String::new, |length| format!(" × {length} tokens"));
    writeln!(out, "\nplan: {} nodes; costs are those of {} rows{length}", plan.nodes.len(), shape.batch)?;
    writeln!(out, "{:>4}  {:<11}{:>12}{:>15}{:>12}  name", "node", "op", "shape", "FLOPs", "bytes")?;
    for (place, node) in plan.nodes.iter().enumerate() {
        let made = plan.value(node.output);
        let rows = match made.rows {
            Rows::Batch => "rows",
            Rows::Token => "tokens",
            Rows::Past => "past",
            Rows::Context => "context",
        };
        let cost = plan.cost(node, size(shape));
        writeln!(
            out,
            "{place:>4}  {:<11}{:>12}{:>15}{:>12}  {}",
            node.op.name(),
            format!("{rows}×{}", made.width),
            si(cost.flops as f64, "FLOP"),
            si(cost.bytes as f64, "B"),
            output::shown(&node.name)
        )?;
    }
    Ok(())
}
