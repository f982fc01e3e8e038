//! What a model's plan asks of a device.

use std::path::Path;

use crate::app::trial::{self, LoadLimits, Trial};
use lapwing_diagnosis::cost::ModelDemand;
use lapwing_ledger::Unit;

/// What a model's plan asks of a device, with numbers of four bytes; by tokens at sequences of 128, else by rows. The layers between
/// do not count as bytes: a device may keep them in its caches.
///
/// # Errors
///
/// Why the file cannot be read, or has no plan.
pub(crate) fn plan_demand(path: &Path) -> Result<ModelDemand, String> {
    use lapwing_onnx::shaped::ShapedGraph;
    use lapwing_plan::plan::BatchSize;
    use lapwing_plan::{fuse, lower};

    const LENGTH: usize = 128;
    trial::load(path, &Trial::new(LoadLimits::default())).map_err(|error| error.to_string())?;
    let graph = ShapedGraph::read(path).map_err(|error| error.to_string())?;
    let mut plan = lower::lower(&graph).map_err(|error| error.to_string())?;
    fuse::fuse(&mut plan);
    let (unit, length) =
        if plan.has_tokens() { (Unit::InputToken, plan.longest().map_or(LENGTH, |n| n.min(LENGTH))) } else { (Unit::Row, 1) };
    let (one, two) = (plan.total(BatchSize::uniform(1, length)), plan.total(BatchSize::uniform(2, length)));
    // of two batches, the second has twice the units and the same weights
    let units = length as f64;
    let added = two.min_bytes.saturating_sub(one.min_bytes) as f64;
    Ok(ModelDemand {
        unit,
        flops_per_unit: one.cost.flops as f64 / units,
        weight_bytes: (one.min_bytes as f64 - added).max(0.0),
        bytes_per_unit: added / units,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(name: &str) -> Result<ModelDemand, String> {
        plan_demand(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans").join(name))
    }

    #[test]
    fn a_plan_says_what_it_asks_of_a_device() {
        // 7 to 4 numbers by 180 products; 202 parameters
        let wanted = ModelDemand { unit: Unit::Row, flops_per_unit: 360.0, weight_bytes: 808.0, bytes_per_unit: 44.0 };
        assert_eq!(demand("mlp-3.onnx"), Ok(wanted));
        let tokens = demand("bert-pre-1.onnx").unwrap();
        assert!(tokens.unit == Unit::InputToken && tokens.flops_per_unit > 0.0 && tokens.weight_bytes > tokens.bytes_per_unit);
        assert!(demand("refused-conv.onnx").is_err() && demand("none.onnx").is_err());
    }
}
