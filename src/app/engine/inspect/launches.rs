//! The kernels that a GPU would run for a plan at one shape, in order, and how the batch would be transferred. It needs no GPU:
//! tiles are chosen for the 132 multiprocessors of an H100 or H200.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::super::cli::InspectArgs;
use super::super::error::ToolError;
use super::super::numbers::si;
use super::super::output;
use super::super::shapes::Shape;
use super::about::size;
use lapwing_engine::gpu::LoweringTarget;
use lapwing_engine::gpu::lower::{Launch, LoweredProgram, PreparedPlan, Step};
use lapwing_engine::gpu::route::{self, TransferPlan};
use lapwing_onnx::UnsupportedNode;
use lapwing_plan::exec::GpuPrecision;
use lapwing_plan::plan::Plan;

/// The fields that `--plan --json --device cuda` adds to the plan's.
pub(crate) fn fields(plan: &Plan, shape: Shape, args: &InspectArgs) -> Result<Map<String, Value>, ToolError> {
    Ok(Lowered::of(plan, shape, args.precision)?.fields(plan))
}

/// Writes the kernels that a GPU would run.
pub(crate) fn table(plan: &Plan, shape: Shape, args: &InspectArgs, out: &mut dyn Write) -> Result<(), ToolError> {
    Lowered::of(plan, shape, args.precision)?.write(plan, shape, out)
}

/// A plan's program, with what all of its programs share.
struct Lowered {
    program: LoweredProgram,
    precision: GpuPrecision,
    weight_bytes: usize,
}

impl Lowered {
    /// Lowers a plan with all of its outputs.
    ///
    /// # Errors
    ///
    /// Names the node that no kernel supports.
    fn of(plan: &Plan, shape: Shape, precision: lapwing_plan::Precision) -> Result<Self, ToolError> {
        let precision = GpuPrecision::from(precision);
        let refused = |refused: UnsupportedNode| ToolError::argument("device", format!("cuda: {refused}"));
        let mut prepared = PreparedPlan::new(plan, &precision, &LoweringTarget::ASSUMED).map_err(refused)?;
        let (capacity, all) = (route::capacity(plan, size(shape)), vec![true; plan.outputs.len()]);
        let program = route::program(&mut prepared, plan, capacity, &all, &LoweringTarget::ASSUMED).map_err(refused)?;
        Ok(Self { program, precision, weight_bytes: prepared.weights.bytes() })
    }

    fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.program.steps.iter().map(|step| match step {
            Step::Launch(launch) => launch,
            Step::Product(product) => &product.own,
        })
    }

    /// The fields beside those of the plan.
    fn fields(&self, plan: &Plan) -> Map<String, Value> {
        let (layout, route) = (&self.program.layout, TransferPlan::of(&self.program));
        let launch = |launch: &Launch| {
            json!({
                "node": launch.node,
                "name": plan.nodes[launch.node].name,
                "kernel": launch.kernel.name,
                "module": launch.kernel.module,
                "grid": [launch.grid.0, launch.grid.1],
                "threads": launch.kernel.threads,
                "shared_bytes": launch.shared,
            })
        };
        let fields = json!({
            "device": "cuda",
            "precision": self.precision.name(),
            "launches": self.launches().map(launch).collect::<Vec<_>>(),
            "graph_launches": 1,
            "inputs_by": route.inputs.name(),
            "outputs_by": route.outputs.name(),
            "completion": route.completion().name(),
            "device_bytes": {
                "weights": self.weight_bytes,
                "arena": layout.arena_bytes(),
                "inputs": layout.input_bytes,
                "outputs": layout.output_bytes,
            },
        });
        if let Value::Object(fields) = fields { fields } else { Map::new() }
    }

    /// Writes a table with one launch per line.
    fn write(&self, plan: &Plan, shape: Shape, out: &mut dyn Write) -> Result<(), ToolError> {
        let (layout, route) = (&self.program.layout, TransferPlan::of(&self.program));
        let length = shape.length.map_or_else(String::new, |length| format!(" × {length} tokens"));
        let kernels = self.launches().count();
        let precision = self.precision.name();
        writeln!(out, "\non cuda, {precision}, {} rows{length}: one graph of {kernels} kernels", shape.batch)?;
        let bytes = |bytes: usize| si(bytes as f64, "B");
        let (weights, arena) = (bytes(self.weight_bytes), bytes(layout.arena_bytes()));
        let (inputs, outputs) = (bytes(layout.input_bytes), bytes(layout.output_bytes));
        let (by, back, end) = (route.inputs.name(), route.outputs.name(), route.completion().name());
        writeln!(out, "weights {weights}, arena {arena}, inputs {inputs} {by}, outputs {outputs} {back}, told by {end}")?;
        writeln!(out, "{:>4}  {:<20}{:>12}{:>9}{:>12}  name", "node", "kernel", "blocks", "threads", "shared")?;
        for launch in self.launches() {
            writeln!(
                out,
                "{:>4}  {:<20}{:>12}{:>9}{:>12}  {}",
                launch.node,
                launch.kernel.name,
                format!("{}×{}", launch.grid.0, launch.grid.1),
                launch.kernel.threads,
                si(f64::from(launch.shared), "B"),
                output::shown(&plan.nodes[launch.node].name)
            )?;
        }
        Ok(())
    }
}
