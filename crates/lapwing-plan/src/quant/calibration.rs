//! Calibration files: the static ranges of product inputs found by `lapwing engine quantize`, by the names of the
//! products' nodes, as JSON: `{"model": "encoder", "ranges": {"layer.0/MatMul": {"scale": 0.0123, "zero": 128}}}`.
//! Products that are not listed use a range per row.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::exec::{CpuPrecision, RowQuant};
use crate::fuse::fuse;
use crate::lower::lower;
use crate::plan::{Op, Plan};
use lapwing_onnx::shaped::ShapedGraph;

/// Why a calibration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// The file cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// Its path.
        path: String,
        /// The system's error.
        reason: String,
    },
    /// The file is not a valid calibration.
    #[error("{path}: is no calibration file: {reason}")]
    Format {
        /// Its path.
        path: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// A range is for a node that the model does not have.
    #[error("ranges: {node}: the model has no product of that name; was the calibration made of another file, or version?")]
    Node {
        /// The node's name.
        node: String,
    },
    /// A range has an invalid value.
    #[error("ranges: {node}: {field} is {value}: {reason}")]
    CalibratedRange {
        /// The node's name.
        node: String,
        /// `scale` or `zero`.
        field: &'static str,
        /// The value.
        value: String,
        /// The valid values.
        reason: &'static str,
    },
    /// The model has no plan.
    #[error("calibration: the model has no plan: {reason}")]
    NoPlan {
        /// The unsupported node.
        reason: String,
    },
}

/// The static ranges of a model's products.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The model's name, for information only.
    pub model: String,
    /// Scale and zero point of each product's input, by the name of the product's node.
    pub ranges: BTreeMap<String, CalibratedRange>,
}

/// A static range: `byte = round(value / scale) + zero`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedRange {
    /// Above zero, finite.
    pub scale: f32,
    /// In 0..=255.
    pub zero: i32,
}

impl Calibration {
    /// Creates a calibration from ranges by node index.
    #[must_use]
    pub fn new(model: &str, plan: &Plan, ranges: &[Option<RowQuant>]) -> Self {
        let named = products(plan).into_iter().filter_map(|(place, name)| {
            let quant = ranges.get(place).copied().flatten()?;
            Some((name, CalibratedRange { scale: quant.scale, zero: quant.zero }))
        });
        Self { model: model.to_owned(), ranges: named.collect() }
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`CalibrationError::File`], or [`CalibrationError::Format`] with the position of the error.
    pub fn read(path: &Path) -> Result<Self, CalibrationError> {
        let path_text = || path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|e| CalibrationError::File { path: path_text(), reason: e.to_string() })?;
        serde_json::from_str(&text).map_err(|e| CalibrationError::Format { path: path_text(), reason: e.to_string() })
    }

    /// Writes a file.
    ///
    /// # Errors
    ///
    /// [`CalibrationError::File`].
    pub fn write(&self, path: &Path) -> Result<(), CalibrationError> {
        let fails = |reason: String| CalibrationError::File { path: path.display().to_string(), reason };
        let mut text = serde_json::to_string_pretty(self).map_err(|e| fails(e.to_string()))?;
        text.push('\n');
        std::fs::write(path, text).map_err(|e| fails(e.to_string()))
    }

    /// The ranges by node index, as an executor takes them.
    ///
    /// # Errors
    ///
    /// [`CalibrationError::Node`] with a name that no product of the plan has, [`CalibrationError::CalibratedRange`] with an
    /// invalid range.
    pub fn places(&self, plan: &Plan) -> Result<Vec<Option<RowQuant>>, CalibrationError> {
        let places: BTreeMap<String, usize> = products(plan).into_iter().map(|(place, name)| (name, place)).collect();
        let mut ranges = vec![None; plan.nodes.len()];
        for (node, range) in &self.ranges {
            let place = places.get(node).ok_or_else(|| CalibrationError::Node { node: node.clone() })?;
            let wrong = |field, value: String, reason| {
                Err(CalibrationError::CalibratedRange { node: node.clone(), field, value, reason })
            };
            if !(range.scale.is_normal() && range.scale > 0.0) {
                return wrong("scale", range.scale.to_string(), "must be above zero and finite");
            }
            if !(0..=255).contains(&range.zero) {
                return wrong("zero", range.zero.to_string(), "must be in 0..=255");
            }
            ranges[*place] = Some(RowQuant { scale: range.scale, zero: range.zero });
        }
        Ok(ranges)
    }

    /// The precision for an executor of this graph's plan.
    ///
    /// # Errors
    ///
    /// Those of [`Self::places`], and [`CalibrationError::NoPlan`].
    pub fn precision(&self, graph: &ShapedGraph) -> Result<CpuPrecision, CalibrationError> {
        let mut plan = lower(graph).map_err(|e| CalibrationError::NoPlan { reason: e.to_string() })?;
        fuse(&mut plan);
        Ok(CpuPrecision::Int8(self.places(&plan)?))
    }
}

/// The indices and names of a plan's products. If several nodes have the same name, the second is `name#2`, and so on.
fn products(plan: &Plan) -> Vec<(usize, String)> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut products = Vec::new();
    for (place, node) in plan.nodes.iter().enumerate().filter(|(_, node)| matches!(node.op, Op::Gemm { .. })) {
        let times = seen.entry(&node.name).and_modify(|times| *times += 1).or_insert(1);
        products.push((place, if *times == 1 { node.name.clone() } else { format!("{}#{times}", node.name) }));
    }
    products
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Activation, ElementType, Node, Rows, Value, ValueId, Weight, WeightId};

    /// Two products of the same name, and a softmax between them.
    fn plan() -> Plan {
        let value = Value { rows: Rows::Batch, width: 2, kind: ElementType::F32 };
        let gemm = |x| Op::Gemm { x: ValueId(x), weight: WeightId(0), bias: None, activation: Activation::None, residual: None };
        let node = |at, op| Node { name: "mul".into(), op, output: ValueId(at) };
        Plan {
            values: vec![value; 4],
            weights: vec![Weight { name: "w".into(), rows: 2, width: 2, data: vec![1.0; 4].into() }],
            nodes: vec![node(1, gemm(0)), node(2, Op::Softmax(ValueId(1))), node(3, gemm(2))],
            ..Plan::default()
        }
    }

    #[test]
    fn ranges_come_back_to_their_places() {
        let plan = plan();
        let ranges = vec![None, None, Some(RowQuant { scale: 0.5, zero: 7 })];
        let calibration = Calibration::new("m", &plan, &ranges);
        assert_eq!(calibration.ranges.keys().collect::<Vec<_>>(), ["mul#2"]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ranges.json");
        calibration.write(&file).unwrap();
        let back = Calibration::read(&file).unwrap();
        assert_eq!(back, calibration);
        assert_eq!(back.places(&plan).unwrap(), ranges);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let of = |node: &str, scale: f32, zero: i32| {
            let ranges = BTreeMap::from([(node.to_owned(), CalibratedRange { scale, zero })]);
            Calibration { model: "m".into(), ranges }.places(&plan()).map_err(|e| e.to_string())
        };
        assert!(of("mul", 1.0, 0).is_ok());
        assert!(of("mul#3", 1.0, 0).unwrap_err().starts_with("ranges: mul#3: the model has no product of that name"));
        for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(of("mul", scale, 0).unwrap_err(), format!("ranges: mul: scale is {scale}: must be above zero and finite"));
        }
        assert_eq!(of("mul", 1.0, 256).unwrap_err(), "ranges: mul: zero is 256: must be in 0..=255");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ranges.json");
        assert!(Calibration::read(&file).unwrap_err().to_string().contains("ranges.json: "));
        std::fs::write(&file, r#"{"model": "m", "ranges": {"mul": {"scale": 1}}}"#).unwrap();
        let error = Calibration::read(&file).unwrap_err().to_string();
        assert!(error.contains("is no calibration file: missing field `zero`"), "{error}");
    }
}
