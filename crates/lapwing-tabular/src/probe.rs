//! Runs of a model with synthetic inputs when it is loaded: for the types and lengths of its outputs, and for its cost.

use bytes::Bytes;
use lapwing_onnx::UnsupportedNode;
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::tensor_shape_proto::dimension::Value::DimValue;
use lapwing_onnx::messages::type_proto::Value::TensorType;
use lapwing_onnx::messages::{GraphProto, NodeProto, ValueInfoProto};
use lapwing_onnx::tensor::{Datatype, TensorSpec};

use crate::graph::{Program, part};
use crate::operator::{Scratch, TabularCost};
use crate::run::run;
use crate::value::{Elements, Value, count};

/// Rows of the trials: two numbers, so that an axis that follows them is told from one that does not.
const FEW: usize = 2;
const MORE: usize = 5;

/// What the trials show.
pub(crate) struct Probed {
    /// Type and shape of each output.
    pub(crate) outputs: Vec<(Datatype, Vec<Option<usize>>)>,
    pub(crate) cost: LinearCost,
}

/// A cost that is linear in the rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinearCost {
    few: TabularCost,
    more: TabularCost,
}

impl LinearCost {
    pub(crate) fn of(self, rows: u64) -> TabularCost {
        let line = |few: u64, more: u64| {
            let (few, more) = (i128::from(few), i128::from(more));
            let value = few + (more - few) * (i128::from(rows) - FEW as i128) / (MORE - FEW) as i128;
            u64::try_from(value.max(0)).unwrap_or(u64::MAX)
        };
        TabularCost {
            comparisons: line(self.few.comparisons, self.more.comparisons),
            flops: line(self.few.flops, self.more.flops),
            bytes: line(self.few.bytes, self.more.bytes),
        }
    }
}

/// The inputs that a call gives: those without an initializer.
pub(crate) fn inputs(graph: &GraphProto) -> Result<Vec<TensorSpec>, UnsupportedNode> {
    let is_given = |info: &&ValueInfoProto| !graph.initializer.iter().any(|tensor| tensor.name == info.name);
    // each input looks for its initializer, and for nodes that read it
    let others = graph.initializer.len().saturating_add(graph.node.len());
    if graph.input.len().saturating_mul(others) > 1 << 26 {
        return Err(part("graph", format!("has {} inputs, {others} nodes and initializers: too many", graph.input.len())));
    }
    graph.input.iter().filter(is_given).map(|info| input(info, &graph.node)).collect()
}

fn input(info: &ValueInfoProto, nodes: &[NodeProto]) -> Result<TensorSpec, UnsupportedNode> {
    let Some(TensorType(tensor)) = info.r#type.as_ref().and_then(|kind| kind.value.as_ref()) else {
        return Err(part(&info.name, "is an input that is no tensor"));
    };
    let datatype = match DataType::try_from(tensor.elem_type) {
        Ok(DataType::Float) => Datatype::Fp32,
        Ok(DataType::Double) => Datatype::Fp64,
        Ok(DataType::Int64) => Datatype::Int64,
        Ok(DataType::Int32) => Datatype::Int32,
        Ok(DataType::Bool) => Datatype::Bool,
        Ok(DataType::String) => Datatype::Bytes,
        _ => return Err(part(&info.name, format!("is an input of the element type {} of ONNX", tensor.elem_type))),
    };
    let Some(shape) = &tensor.shape else { return Err(part(&info.name, "is an input without a shape")) };
    let mut lengths = Vec::with_capacity(shape.dim.len());
    for dim in &shape.dim {
        lengths.push(match dim.value {
            // converters write -1 and 0 for axes that are open
            Some(DimValue(length)) if length > 0 => Some(usize::try_from(length).unwrap_or(usize::MAX)),
            _ => None,
        });
    }
    // a second axis that is open has the columns that the operators ask for
    if let [_, columns @ None] = &mut lengths[..] {
        *columns = nodes.iter().filter(|node| node.input.first() == Some(&info.name)).filter_map(columns_of).max();
    }
    let fixed: Vec<usize> = lengths.iter().map(|length| length.unwrap_or(MORE)).collect();
    count(&fixed).map_err(|reason| part(&info.name, reason))?;
    Ok(TensorSpec { name: info.name.clone(), datatype, shape: lengths })
}

/// The columns that an operator asks of its first input.
fn columns_of(node: &NodeProto) -> Option<usize> {
    let listed = |name: &str| node.attribute.iter().find(|attribute| attribute.name == name);
    let columns = match node.op_type.as_str() {
        "TreeEnsemble" | "TreeEnsembleClassifier" | "TreeEnsembleRegressor" => {
            usize::try_from(*listed("nodes_featureids")?.ints.iter().max()?).ok()?.checked_add(1)?
        }
        "Scaler" => listed("scale")?.floats.len(),
        "Imputer" => listed("imputed_value_floats").map_or(0, |attribute| attribute.floats.len()),
        "LinearClassifier" => listed("coefficients")?.floats.len().checked_div(listed("intercepts")?.floats.len())?,
        "LinearRegressor" => listed("coefficients")?.floats.len() / listed("targets").map_or(1, |a| a.i.max(1) as usize),
        _ => return None,
    };
    Some(columns).filter(|columns| *columns > 1)
}

/// Inputs with `rows` rows that all differ.
pub(crate) fn examples(ports: &[TensorSpec], rows: usize) -> Result<Vec<Value>, UnsupportedNode> {
    let example = |port: &TensorSpec| {
        let length = |(axis, fixed): (usize, &Option<usize>)| fixed.unwrap_or(if axis == 0 { rows } else { 1 });
        let shape: Vec<usize> = port.shape.iter().enumerate().map(length).collect();
        let total = count(&shape).map_err(|reason| part(&port.name, reason))?;
        // numbers from -3 to 3 in an order without a pattern
        let number = |at: usize| (at.wrapping_mul(2_654_435_761) >> 7) % 6_001;
        let real = |at: usize| number(at) as f64 / 1_000.0 - 3.0;
        let elements = match port.datatype {
            Datatype::Fp64 => Elements::F64((0..total).map(real).collect()),
            Datatype::Int64 => Elements::I64((0..total).map(|at| number(at) as i64 % 4).collect()),
            Datatype::Int32 => Elements::I32((0..total).map(|at| number(at) as i32 % 4).collect()),
            Datatype::Bool => Elements::Bool((0..total).map(|at| number(at) % 2 == 1).collect()),
            Datatype::Bytes => Elements::Text((0..total).map(|at| Bytes::from((number(at) % 4).to_string())).collect()),
            _ => Elements::F32((0..total).map(|at| real(at) as f32).collect()),
        };
        Value::new(&shape, elements).map_err(|reason| part(&port.name, reason))
    };
    ports.iter().map(example).collect()
}

/// Runs the trials.
pub(crate) fn probe(program: &Program, ports: &[TensorSpec]) -> Result<Probed, UnsupportedNode> {
    let mut scratch = Scratch { is_trial: true, ..Scratch::default() };
    let mut trial = |rows: usize| {
        let mut cost = TabularCost::default();
        let wanted = vec![true; program.outputs.len()];
        let mut watch = |step: &crate::graph::Step, read: &[Option<&Value>], made: &[Value]| {
            cost = cost.plus(step.operator.cost(read, made));
        };
        let made = run(program, examples(ports, rows)?, &wanted, &mut scratch, &mut watch);
        made.map(|made| (made, cost)).map_err(|reason| part("trial", reason))
    };
    let ((few, few_cost), (more, more_cost)) = (trial(FEW)?, trial(MORE)?);
    let shape = |(few, more): (&Value, &Value)| {
        let is_alike = few.shape.len() == more.shape.len();
        let pairs = few.shape.iter().zip(&more.shape);
        let shape: Vec<_> = pairs.map(|(few, more)| (few == more).then_some(*few)).collect();
        if is_alike {
            Ok((more.elements.datatype(), shape))
        } else {
            Err(part("trial", "an output has another rank for other rows"))
        }
    };
    let outputs: Vec<_> = few.iter().zip(&more).map(shape).collect::<Result<_, _>>()?;
    Ok(Probed { outputs, cost: LinearCost { few: few_cost, more: more_cost } })
}
