//! The cost of a plan's nodes with the number formats of a device. The counts are those of the plan's accounting, with two bytes
//! for each number in half precision, and one byte for each weight of an 8-bit product plus four for the scale of each column.
//! Padding of rows and columns and copies that a kernel needs for itself are not counted, because they are not part of the work.

use super::executor::CudaExecutor;
use super::layout::Kind;
use super::lower::{LoweredProgram, PreparedPlan, Step};

use lapwing_onnx::UnsupportedNode;
use lapwing_plan::exec::{ExecutionCost, GpuPrecision, Precision};
use lapwing_plan::plan::{BatchSize, Node, Op, Plan, ValueId, WeightId, Widths};

/// The bytes of each number of a plan on a device.
struct Stored<'a> {
    plan: &'a Plan,
    prepared: &'a PreparedPlan,
}

impl Widths for Stored<'_> {
    fn value(&self, id: ValueId) -> usize {
        self.prepared.stored[id.0].kind.bytes()
    }

    fn weight(&self, node: &Node, id: WeightId) -> (usize, usize) {
        let weights = &self.prepared.weights;
        match &node.op {
            Op::Gemm { weight, .. } if *weight == id => match weights.product(id) {
                Some(Kind::S8) => (1, 4),
                kind => (kind.map_or(4, Kind::bytes), 0),
            },
            Op::Embed { tables, .. } if tables.iter().any(|(table, _)| *table == id) => {
                (weights.table(id).map_or(4, Kind::bytes), 0)
            }
            _ => Widths::weight(self.plan, node, id),
        }
    }
}

/// The cost of a plan, given its program for batches of `size`.
fn execution_cost(
    plan: &Plan,
    prepared: &PreparedPlan,
    program: &LoweredProgram,
    precision: &GpuPrecision,
    size: BatchSize,
) -> ExecutionCost {
    ExecutionCost {
        weight_bytes: prepared.weights.bytes(),
        arena_bytes: program.layout.arena_bytes(),
        kernels: program.steps.len(),
        ..ExecutionCost::count(plan, size, &Stored { plan, prepared }, |at, node| {
            product_precision(node, at, prepared, program, precision)
        })
    }
}

/// The number format of a node's products; single precision for a node without products.
fn product_precision(
    node: &Node,
    at: usize,
    prepared: &PreparedPlan,
    program: &LoweredProgram,
    precision: &GpuPrecision,
) -> Precision {
    match &node.op {
        // by the format of its numbers, although the kernel for few rows multiplies without tensor cores
        Op::Gemm { weight, .. } => match prepared.weights.product(*weight) {
            Some(Kind::S8) => Precision::Int8,
            Some(Kind::F16) => Precision::Fp16,
            _ if precision.is_tf32() => Precision::Tf32,
            _ => Precision::Fp32,
        },
        // heads of odd sizes are multiplied in single precision, whatever format they are stored in
        Op::Attention { .. } => {
            let is_half = |step: &Step| matches!(step, Step::Launch(launch) if launch.node == at && launch.kernel.module == "attention_mma");
            if program.steps.iter().any(is_half) { Precision::Fp16 } else { Precision::Fp32 }
        }
        _ => Precision::Fp32,
    }
}

impl CudaExecutor {
    /// The cost of the plan for batches of this size, with all outputs.
    ///
    /// # Errors
    ///
    /// [`UnsupportedNode`] names a node that no kernel supports at this size.
    pub fn execution_cost(&self, size: BatchSize) -> Result<ExecutionCost, UnsupportedNode> {
        let program = self.program(size, &vec![true; self.plan().outputs.len()])?;
        Ok(execution_cost(self.plan(), self.prepared(), &program, self.precision(), size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{LoweringTarget, route};
    use crate::tests::plans::{every_on_gpus, plans};
    use lapwing_plan::plan::{Cost, Rows};

    fn account(name: &str, precision: &GpuPrecision, size: BatchSize) -> (Plan, ExecutionCost) {
        let (_, plan) = plans(name);
        let mut prepared = PreparedPlan::new(&plan, precision, &LoweringTarget::ASSUMED).unwrap();
        let (capacity, all) = (route::capacity(&plan, size), vec![true; plan.outputs.len()]);
        let program = route::program(&mut prepared, &plan, capacity, &all, &LoweringTarget::ASSUMED).unwrap();
        let account = execution_cost(&plan, &prepared, &program, precision, size);
        (plan, account)
    }

    #[test]
    fn single_precision_costs_what_the_plan_says() {
        for name in every_on_gpus() {
            for size in [BatchSize::uniform(1, 5), BatchSize::uniform(17, 9)] {
                for precision in [GpuPrecision::Fp32, GpuPrecision::Tf32] {
                    let (plan, account) = account(&name, &precision, size);
                    assert_eq!(account.total, plan.total(size), "{name}");
                    let costs: Vec<Cost> = plan.nodes.iter().map(|node| plan.cost(node, size)).collect();
                    assert_eq!(account.nodes.iter().map(|(_, cost)| *cost).collect::<Vec<_>>(), costs);
                    let is_product = |node: &Node| matches!(node.op, Op::Gemm { .. });
                    for (node, (got, _)) in plan.nodes.iter().zip(&account.nodes) {
                        let tf32 = is_product(node) && precision == GpuPrecision::Tf32;
                        assert_eq!(*got == Precision::Tf32, tf32, "{name} {}", node.name);
                    }
                    assert!(account.kernels >= plan.nodes.len());
                }
            }
        }
    }

    #[test]
    fn narrow_numbers_are_fewer_bytes_and_as_many_operations() {
        let mut fewer = 0;
        for name in every_on_gpus() {
            let size = BatchSize::uniform(3, 7);
            let [exact, half, bytes] = [GpuPrecision::Fp32, GpuPrecision::Fp16, GpuPrecision::Int8(Vec::new())]
                .map(|precision| account(&name, &precision, size).1);
            for other in [&half, &bytes] {
                assert_eq!(other.total.cost.flops, exact.total.cost.flops, "{name}");
                assert!(other.total.cost.bytes <= exact.total.cost.bytes && other.total.min_bytes <= exact.total.min_bytes);
                fewer += usize::from(2 * other.total.min_bytes < exact.total.min_bytes * 4 / 3);
            }
        }
        assert!(fewer > 8, "{fewer}");
    }

    /// Three products of an MLP by hand.
    #[test]
    fn products_are_counted_as_they_are_stored() {
        let size = BatchSize::uniform(9, 1);
        let [(plan, half), (_, bytes)] =
            [GpuPrecision::Fp16, GpuPrecision::Int8(Vec::new())].map(|precision| account("mlp-3", &precision, size));
        for (at, node) in plan.nodes.iter().enumerate() {
            let Op::Gemm { x, weight, bias, residual: None, .. } = &node.op else { continue };
            let (k, n) = (plan.weight(*weight).rows, plan.weight(*weight).width);
            let is_output = |id: ValueId| plan.outputs.iter().any(|port| port.value == id);
            let value = |id: ValueId| {
                assert_eq!(plan.value(id).rows, Rows::Batch);
                9 * plan.value(id).width * if is_output(id) || plan.value(id).width == 1 { 4 } else { 2 }
            };
            let carried = value(*x) + value(node.output) + if bias.is_some() { 4 * n } else { 0 };
            assert_eq!(half.nodes[at].1.bytes, (carried + 2 * k * n) as u64, "{}", node.name);
            let weight = if k >= 32 && n >= 8 { k * n + 4 * n } else { 2 * k * n };
            assert_eq!(bytes.nodes[at].1.bytes, (carried + weight) as u64, "{}", node.name);
            let int8 = if k >= 32 && n >= 8 { Precision::Int8 } else { Precision::Fp16 };
            assert_eq!((half.nodes[at].0, bytes.nodes[at].0), (Precision::Fp16, int8));
        }
    }

    #[test]
    fn attention_multiplies_in_what_its_kernel_does() {
        let of = |precision: GpuPrecision| {
            let (plan, account) = account("bert-post-1", &precision, BatchSize::uniform(2, 9));
            let at = plan.nodes.iter().position(|node| matches!(node.op, Op::Attention { .. })).unwrap();
            account.nodes[at].0
        };
        assert_eq!(of(GpuPrecision::Fp16), Precision::Fp16);
        assert_eq!(of(GpuPrecision::Tf32), Precision::Fp32);
    }
}
