//! Operators along axes: the `Reduce…` family, `ArgMax` and `ArgMin`, `Softmax`.

use super::axes::{around, axis};
use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, TabularCost, moved, required};
use crate::scores;
use crate::value::{Elements, Value, count};

#[derive(Clone, Copy, Debug)]
enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    SumSquare,
    L1,
    L2,
    LogSum,
    LogSumExp,
}

#[derive(Debug)]
struct Reduce {
    reduction: Reduction,
    axes: Vec<i64>,
    keeps: bool,
    /// Whether no axes mean that nothing is reduced.
    none_is_none: bool,
}

/// `ReduceSum` … `ReduceLogSumExp`, by the node's operator.
pub(crate) fn reduce(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    use Reduction::{L1, L2, LogSum, LogSumExp, Max, Mean, Min, Prod, Sum, SumSquare};
    let known = [Sum, Mean, Max, Min, Prod, SumSquare, L1, L2, LogSum, LogSumExp];
    let found = known.into_iter().find(|reduction| node.node.op_type == format!("Reduce{reduction:?}"));
    Ok(Box::new(Reduce {
        reduction: found.ok_or("is no reduction that is known")?,
        axes: node.ints("axes")?.to_vec(),
        keeps: node.int("keepdims")?.unwrap_or(1) != 0,
        none_is_none: node.int("noop_with_empty_axes")?.unwrap_or(0) != 0,
    }))
}

impl Reduction {
    /// Reduces the numbers of one group.
    fn of(self, items: impl Iterator<Item = f64> + Clone) -> f64 {
        match self {
            Self::Sum => items.sum(),
            Self::Mean => {
                let count = items.clone().count();
                items.sum::<f64>() / count as f64
            }
            Self::Max => items.fold(f64::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a }),
            Self::Min => items.fold(f64::INFINITY, |a, b| if b < a || b.is_nan() { b } else { a }),
            Self::Prod => items.product(),
            Self::SumSquare => items.map(|x| x * x).sum(),
            Self::L1 => items.map(f64::abs).sum(),
            Self::L2 => items.map(|x| x * x).sum::<f64>().sqrt(),
            Self::LogSum => items.sum::<f64>().ln(),
            Self::LogSumExp => {
                let most = items.clone().fold(f64::NEG_INFINITY, f64::max);
                let most = if most.is_finite() { most } else { 0.0 };
                most + items.map(|x| (x - most).exp()).sum::<f64>().ln()
            }
        }
    }
}

impl Operator for Reduce {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let rank = value.shape.len();
        let given = if let Some(axes) = inputs.get(1).copied().flatten() { axes.i64s()? } else { self.axes.clone() };
        if given.is_empty() && self.none_is_none {
            return Ok(vec![value.clone()]);
        }
        let axes: Vec<usize> = if given.is_empty() {
            (0..rank).collect()
        } else {
            given.into_iter().map(|number| axis(number, rank)).collect::<Result<_, _>>()?
        };
        // the kept axes in front, the reduced ones behind
        let (mut kept, mut shape) = (Vec::new(), Vec::new());
        for at in 0..rank {
            if axes.contains(&at) {
                if self.keeps {
                    shape.push(1);
                }
            } else {
                kept.push(at);
                shape.push(value.shape[at]);
            }
        }
        let stride = |at: usize| value.shape[at + 1..].iter().product::<usize>();
        let offsets = |axes: &[usize]| {
            axes.iter().fold(vec![0_usize], |offsets, at| {
                let (length, stride) = (value.shape[*at], stride(*at));
                offsets.iter().flat_map(|offset| (0..length).map(move |place| offset + place * stride)).collect()
            })
        };
        let reduced: Vec<usize> = (0..rank).filter(|at| axes.contains(at)).collect();
        let (groups, inside) = (offsets(&kept), offsets(&reduced));
        let group = |items: &dyn Fn(usize) -> f64| -> Vec<f64> {
            groups.iter().map(|from| self.reduction.of(inside.iter().map(|offset| items(from + offset)))).collect()
        };
        let elements = match &value.elements {
            Elements::F32(items) => Elements::F32(group(&|at| f64::from(items[at])).into_iter().map(|x| x as f32).collect()),
            Elements::F64(items) => Elements::F64(group(&|at| items[at])),
            Elements::I64(items) => Elements::I64(group(&|at| items[at] as f64).into_iter().map(|x| x as i64).collect()),
            Elements::I32(items) => Elements::I32(group(&|at| f64::from(items[at])).into_iter().map(|x| x as i32).collect()),
            other => return Err(format!("reduces {}", other.datatype().name())),
        };
        Ok(vec![Value::new(&shape, elements)?])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        let flops = required(inputs, 0).map_or(0, |value| value.elements.len() as u64);
        TabularCost { comparisons: 0, flops, bytes: moved(inputs, outputs) }
    }
}

#[derive(Debug)]
struct Arg {
    axis: i64,
    keeps: bool,
    is_last: bool,
    is_least: bool,
}

/// `ArgMax` and `ArgMin`.
pub(crate) fn arg(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(Arg {
        axis: node.int("axis")?.unwrap_or(0),
        keeps: node.int("keepdims")?.unwrap_or(1) != 0,
        is_last: node.int("select_last_index")?.unwrap_or(0) != 0,
        is_least: node.node.op_type == "ArgMin",
    }))
}

impl Arg {
    fn best<T: Copy + PartialOrd>(&self, items: &[T], (outer, length, inner): (usize, usize, usize)) -> Vec<i64> {
        let best = |line: usize| {
            let from = line / inner * length * inner + line % inner;
            let mut best = 0;
            for place in 1..length {
                let (new, old) = (items[from + place * inner], items[from + best * inner]);
                let is_better = if self.is_least { new < old } else { new > old };
                if is_better || (self.is_last && new == old) {
                    best = place;
                }
            }
            best as i64
        };
        (0..outer * inner).map(best).collect()
    }
}

impl Operator for Arg {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let at = axis(self.axis, value.shape.len())?;
        let around = around(&value.shape, at);
        if around.1 == 0 {
            return Err("seeks the best of no elements".into());
        }
        let best = match &value.elements {
            Elements::F32(items) => self.best(items, around),
            Elements::F64(items) => self.best(items, around),
            Elements::I64(items) => self.best(items, around),
            Elements::I32(items) => self.best(items, around),
            other => return Err(format!("compares {}", other.datatype().name())),
        };
        let mut shape = value.shape.clone();
        if self.keeps {
            shape[at] = 1;
        } else {
            shape.remove(at);
        }
        Ok(vec![Value::new(&shape, Elements::I64(best))?])
    }
}

/// The axis, and whether all behind it belong to it, as before opset 13.
#[derive(Debug)]
struct Softmax {
    axis: i64,
    is_flat: bool,
}

/// `Softmax` of single precision.
pub(crate) fn softmax(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let is_flat = node.opset < 13;
    Ok(Box::new(Softmax { axis: node.int("axis")?.unwrap_or(if is_flat { 1 } else { -1 }), is_flat }))
}

impl Operator for Softmax {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let mut items = value.f32s()?.to_vec();
        let at = axis(self.axis, value.shape.len())?;
        let (outer, length, inner) = around(&value.shape, at);
        count(&value.shape)?;
        if self.is_flat || inner == 1 {
            items.chunks_exact_mut((length * inner).max(1)).for_each(scores::softmax);
        } else {
            for line in 0..outer * inner {
                let from = line / inner * length * inner + line % inner;
                let mut group: Vec<f32> = (0..length).map(|place| items[from + place * inner]).collect();
                scores::softmax(&mut group);
                group.iter().enumerate().for_each(|(place, item)| items[from + place * inner] = *item);
            }
        }
        Ok(vec![Value::new(&value.shape, Elements::F32(items))?])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        let flops = required(inputs, 0).map_or(0, |value| 4 * value.elements.len() as u64);
        TabularCost { comparisons: 0, flops, bytes: moved(inputs, outputs) }
    }
}
