//! The cost of a graph as tract counts it, for models without a plan: matrix products and convolutions of the
//! simplified graph.

use tract_onnx::prelude::{Symbol, TractResult, TypedFact, TypedNode};
use tract_onnx::tract_core::internal::{Cost, SymbolValues};
use tract_onnx::tract_core::ops::cnn::{Conv, Deconv};
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::scan::Scan;

use crate::Graph;

impl Graph {
    /// FLOPs of products and convolutions for a call of `rows` rows, each of `length` tokens if axes after the first
    /// are open; a multiply-add is two. `None` if the graph has operators that tract does not count (loops, branches,
    /// transposed convolutions), or if a length depends on the call's values.
    #[must_use]
    pub fn flops(&self, rows: usize, length: usize) -> Option<u64> {
        if let Some(open) = &self.open {
            let typed = open.at(|axis| if axis == 0 { rows } else { length }).ok()?;
            return Self { typed, open: None }.flops(rows, length);
        }
        let symbols = self.symbols(rows, length).ok()?;
        self.typed.nodes.iter().try_fold(0_u64, |sum, node| sum.checked_add(self.node_flops(node, &symbols)?))
    }

    /// The number of floating-point elements in the file's constants.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let constants = self.typed.nodes.iter().filter_map(|node| node.op_as::<Const>());
        let floats = constants.map(Const::val).filter(|tensor| tensor.datum_type().is_float());
        floats.map(|tensor| tensor.len() as u64).sum()
    }

    fn node_flops(&self, node: &TypedNode, symbols: &SymbolValues) -> Option<u64> {
        if node.op_is::<Scan>() || node.op_is::<IfThenElse>() || node.op_is::<Deconv>() {
            return None;
        }
        if !node.op_is::<EinSum>() && !node.op_is::<Conv>() {
            return Some(0);
        }
        let facts: TractResult<Vec<&TypedFact>> = node.inputs.iter().map(|outlet| self.typed.outlet_fact(*outlet)).collect();
        let costs = node.op.cost(&facts.ok()?).ok()?;
        costs.iter().filter(|(kind, _)| matches!(kind, Cost::FMA(_))).try_fold(0_u64, |sum, (_, count)| {
            let count = u64::try_from(count.eval_to_i64(symbols).ok()?).ok()?;
            sum.checked_add(count.checked_mul(2)?)
        })
    }

    /// Values for the inputs' symbolic dimensions: the first axis has `rows`, the others `length`.
    fn symbols(&self, rows: usize, length: usize) -> TractResult<SymbolValues> {
        let mut values = SymbolValues::default();
        for outlet in &self.typed.inputs {
            let fact = self.typed.outlet_fact(*outlet)?;
            for (axis, dim) in fact.shape.iter().enumerate() {
                let count = if axis == 0 { rows } else { length };
                let open: Vec<Symbol> = dim.symbols().into_iter().collect();
                if let [symbol] = &open[..]
                    && values.get(symbol).is_none()
                {
                    values.set(symbol, i64::try_from(count)?);
                }
            }
        }
        Ok(values)
    }
}
