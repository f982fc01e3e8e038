//! Operators that compute with each element: arithmetic, comparisons, logic, casts, and the dequantization of weights.

use super::task::Task;
use super::walk::Walk;
use crate::constant::is_float;
use crate::shaped::Constant;
use crate::tensor::Datatype;
use crate::view::axis;

/// Evaluates a node; `None` if it is none of these, or has types that it does not take.
pub(crate) fn evaluate(task: &Task<'_>) -> Option<Constant> {
    let first = task.input(0)?;
    match task.operator() {
        "Cast" | "CastLike" => cast(first, task.datatype?),
        "DequantizeLinear" => dequantise(task, first),
        "Range" => range(task, first),
        "Clip" => clip(task, first),
        "Min" | "Max" | "Sum" if task.inputs.len() == 1 => Some(first.clone()),
        "Min" | "Max" | "Sum" => {
            let two = two_of(task.operator())?;
            let mut made = first.clone();
            for input in &task.inputs[1..] {
                made = binary(&made, (*input)?, two, made.datatype)?;
            }
            Some(made)
        }
        operator => match (two_of(operator), task.input(1)) {
            (Some(two), Some(other)) => binary(first, other, two, task.datatype?),
            _ => unary(task, first),
        },
    }
}

/// Operators of two.
#[derive(Clone, Copy)]
enum Two {
    Floats(fn(f64, f64) -> f64, fn(i64, i64) -> Option<i64>),
    Compares(fn(f64, f64) -> bool, fn(i64, i64) -> bool),
    Logic(fn(bool, bool) -> bool),
}

fn two_of(operator: &str) -> Option<Two> {
    Some(match operator {
        "Add" | "Sum" => Two::Floats(|a, b| a + b, |a, b| Some(a.wrapping_add(b))),
        "Sub" => Two::Floats(|a, b| a - b, |a, b| Some(a.wrapping_sub(b))),
        "Mul" => Two::Floats(|a, b| a * b, |a, b| Some(a.wrapping_mul(b))),
        "Div" => Two::Floats(|a, b| a / b, i64::checked_div),
        "Pow" => Two::Floats(f64::powf, |a, b| u32::try_from(b).ok().map(|b| a.wrapping_pow(b))),
        "Min" => Two::Floats(|a, b| if a.is_nan() || a < b { a } else { b }, |a, b| Some(a.min(b))),
        "Max" => Two::Floats(|a, b| if a.is_nan() || a > b { a } else { b }, |a, b| Some(a.max(b))),
        "Equal" => Two::Compares(|a, b| a == b, |a, b| a == b),
        "Less" => Two::Compares(|a, b| a < b, |a, b| a < b),
        "LessOrEqual" => Two::Compares(|a, b| a <= b, |a, b| a <= b),
        "Greater" => Two::Compares(|a, b| a > b, |a, b| a > b),
        "GreaterOrEqual" => Two::Compares(|a, b| a >= b, |a, b| a >= b),
        "And" => Two::Logic(|a, b| a && b),
        "Or" => Two::Logic(|a, b| a || b),
        "Xor" => Two::Logic(|a, b| a != b),
        _ => return None,
    })
}

/// The shape that two constants broadcast to.
fn broadcast(one: &[usize], other: &[usize]) -> Option<Vec<usize>> {
    let rank = one.len().max(other.len());
    let length = |shape: &[usize], at: usize| (at + shape.len()).checked_sub(rank).map_or(1, |own| shape[own]);
    let both = |at| match (length(one, at), length(other, at)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    (0..rank).map(both).collect()
}

fn binary(one: &Constant, other: &Constant, two: Two, datatype: Datatype) -> Option<Constant> {
    let shape = broadcast(&one.shape, &other.shape)?;
    let places = || Walk::broadcast(&one.shape, &shape).zip(Walk::broadcast(&other.shape, &shape));
    let wide = Datatype::Uint64;
    if is_float(one.datatype) {
        let (a, b): (Vec<f64>, Vec<f64>) = (one.floats()?.collect(), other.floats()?.collect());
        return match two {
            Two::Floats(compute, _) => Constant::of_floats(datatype, &shape, places().map(|(i, j)| compute(a[i], b[j]))),
            Two::Compares(compare, _) => {
                Constant::of_ints(Datatype::Bool, &shape, places().map(|(i, j)| compare(a[i], b[j]).into()))
            }
            Two::Logic(_) => None,
        };
    }
    // numbers of 64 bits without a sign are not ordered as those with one
    if one.datatype != other.datatype || one.datatype == wide {
        return None;
    }
    let (a, b): (Vec<i64>, Vec<i64>) = (one.ints()?.collect(), other.ints()?.collect());
    match two {
        Two::Floats(_, compute) => {
            let made: Option<Vec<i64>> = places().map(|(i, j)| compute(a[i], b[j])).collect();
            Constant::of_ints(datatype, &shape, made?.into_iter())
        }
        Two::Compares(_, compare) => Constant::of_ints(Datatype::Bool, &shape, places().map(|(i, j)| compare(a[i], b[j]).into())),
        Two::Logic(combine) => {
            Constant::of_ints(Datatype::Bool, &shape, places().map(|(i, j)| combine(a[i] != 0, b[j] != 0).into()))
        }
    }
}

fn cast(from: &Constant, to: Datatype) -> Option<Constant> {
    if from.datatype == to {
        return Some(from.clone());
    }
    match (from.ints(), is_float(to)) {
        (Some(ints), false) if from.datatype != Datatype::Uint64 || to != Datatype::Bool => {
            Constant::of_ints(to, &from.shape, ints)
        }
        _ => Constant::of_floats(to, &from.shape, from.floats()?),
    }
}

/// A function of one number, where double precision rounds to what other precisions compute.
fn function(operator: &str) -> Option<fn(f64) -> f64> {
    Some(match operator {
        "Abs" => f64::abs,
        "Neg" => |x| -x,
        "Sqrt" => f64::sqrt,
        "Exp" => f64::exp,
        "Log" => f64::ln,
        "Sin" => f64::sin,
        "Cos" => f64::cos,
        "Tanh" => f64::tanh,
        "Sigmoid" => |x| 1.0 / (1.0 + (-x).exp()),
        "Reciprocal" => |x| 1.0 / x,
        "Floor" => f64::floor,
        "Ceil" => f64::ceil,
        "Round" => f64::round_ties_even,
        "Relu" => |x| if x > 0.0 { x } else { x * 0.0 },
        "Sign" => |x| if x == 0.0 || x.is_nan() { x } else { x.signum() },
        _ => return None,
    })
}

fn unary(task: &Task<'_>, from: &Constant) -> Option<Constant> {
    let shape = &from.shape;
    match task.operator() {
        "Not" if from.datatype == Datatype::Bool => Constant::of_ints(Datatype::Bool, shape, from.ints()?.map(|x| 1 - x)),
        "IsNaN" => Constant::of_ints(Datatype::Bool, shape, from.floats()?.map(|x| x.is_nan().into())),
        operator if is_float(from.datatype) => Constant::of_floats(from.datatype, shape, from.floats()?.map(function(operator)?)),
        "Neg" => Constant::of_ints(from.datatype, shape, from.ints()?.map(i64::wrapping_neg)),
        "Abs" if from.datatype != Datatype::Uint64 => {
            Constant::of_ints(from.datatype, shape, from.ints()?.map(i64::wrapping_abs))
        }
        "Sign" if from.datatype != Datatype::Uint64 => Constant::of_ints(from.datatype, shape, from.ints()?.map(i64::signum)),
        _ => None,
    }
}

fn clip(task: &Task<'_>, from: &Constant) -> Option<Constant> {
    let end = |at: usize, name: &str| match (task.view.has(at), task.view.node.float(name)) {
        (true, _) => task.view.floats(at)?.first().copied().map(Some),
        (false, given) => Some(given.map(f64::from)),
    };
    let (least, most) = (end(1, "min")?, end(2, "max")?);
    let clip = |x: f64| {
        let x = least.filter(|least| x < *least).unwrap_or(x);
        most.filter(|most| x > *most).unwrap_or(x)
    };
    if is_float(from.datatype) {
        return Constant::of_floats(from.datatype, &from.shape, from.floats()?.map(clip));
    }
    let numbers: Vec<i64> = from.ints()?.collect();
    // those that double precision does not hold are not computed
    let is_exact = |x: &i64| x.unsigned_abs() < 1 << 53;
    numbers.iter().all(is_exact).then_some(())?;
    Constant::of_ints(from.datatype, &from.shape, numbers.into_iter().map(|x| clip(x as f64) as i64))
}

fn range(task: &Task<'_>, start: &Constant) -> Option<Constant> {
    let (limit, step) = (task.input(1)?, task.input(2)?);
    let [length] = *task.shape else { return None };
    let kind = start.datatype;
    if [limit, step].into_iter().any(|end| end.datatype != kind) || start.elements() != 1 || step.elements() != 1 {
        return None;
    }
    if is_float(kind) {
        let (start, step) = (start.floats()?.next()?, step.floats()?.next()?);
        return Constant::of_floats(kind, &[length], (0..length).map(|at| start + at as f64 * step));
    }
    let (start, step) = (start.ints()?.next()?, step.ints()?.next()?);
    Constant::of_ints(kind, &[length], (0..length as i64).map(|at| start.wrapping_add(at.wrapping_mul(step))))
}

/// `DequantizeLinear` with one scale, or one for each place of an axis.
fn dequantise(task: &Task<'_>, from: &Constant) -> Option<Constant> {
    let scale = task.input(1)?;
    let zero = task.input(2);
    if task.view.node.int("block_size").unwrap_or(0) != 0 || zero.is_some_and(|zero| zero.elements() != scale.elements()) {
        return None;
    }
    let (scales, zeros): (Vec<f64>, Vec<f64>) = (
        scale.floats()?.collect(),
        match zero {
            Some(zero) => zero.floats()?.collect(),
            None => vec![0.0; scale.elements()],
        },
    );
    // how far two elements of different scales are apart
    let (count, inner) = match (scale.shape.len(), scales.len()) {
        (_, 1) => (1, 1),
        (1, count) => {
            let at = axis(task.view.node.int("axis").unwrap_or(1), from.shape.len()).ok()?;
            (from.shape[at] == count).then_some(())?;
            (count, from.shape[at + 1..].iter().product::<usize>())
        }
        _ => return None,
    };
    let is_signed = from.datatype == Datatype::Int8;
    if scale.datatype == Datatype::Fp32 && (is_signed || from.datatype == Datatype::Uint8) {
        // most weights are these, and they are many
        let each = if count == 1 { from.data.len().max(1) } else { inner.max(1) };
        let mut data: Vec<[u8; 4]> = Vec::with_capacity(from.data.len());
        for (at, part) in from.data.chunks(each).enumerate() {
            let (zero, scale) = (zeros[at % count] as f32, scales[at % count] as f32);
            let number = |byte: &u8| if is_signed { f32::from(*byte as i8) } else { f32::from(*byte) };
            data.extend(part.iter().map(|byte| ((number(byte) - zero) * scale).to_le_bytes()));
        }
        return Constant::filling(scale.datatype, &from.shape, data.into_flattened().into());
    }
    let one = |(at, x): (usize, f64)| {
        let place = at / inner.max(1) % count;
        (x - zeros[place]) * scales[place]
    };
    Constant::of_floats(scale.datatype, &from.shape, from.floats()?.enumerate().map(one))
}
