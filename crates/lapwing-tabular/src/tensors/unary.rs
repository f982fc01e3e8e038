//! Operators of each element by itself, and `Clip`.

use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, required};
use crate::scores::logistic;
use crate::value::{Elements, Value};

/// A function for each type that it is defined for.
#[derive(Clone, Copy, Debug)]
struct Unary {
    single: Option<fn(f32) -> f32>,
    double: Option<fn(f64) -> f64>,
    whole: Option<fn(i64) -> i64>,
}

#[derive(Debug)]
struct Not;

#[derive(Debug)]
struct IsNan;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `Abs` … `Tanh`, by the node's operator.
pub(crate) fn unary(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let real = |single: fn(f32) -> f32, double: fn(f64) -> f64| Unary { single: Some(single), double: Some(double), whole: None };
    let any = |single, double, whole| Unary { whole: Some(whole), ..real(single, double) };
    Ok(Box::new(match node.node.op_type.as_str() {
        "Not" => return Ok(Box::new(Not)),
        "IsNaN" => return Ok(Box::new(IsNan)),
        "Abs" => any(f32::abs, f64::abs, i64::wrapping_abs),
        "Neg" => any(|x| -x, |x| -x, i64::wrapping_neg),
        "Sign" => any(sign_single, sign_double, i64::signum),
        "Relu" => any(|x| if x > 0.0 { x } else { x * 0.0 }, |x| if x > 0.0 { x } else { x * 0.0 }, |x| x.max(0)),
        "Sqrt" => real(f32::sqrt, f64::sqrt),
        "Exp" => real(f32::exp, f64::exp),
        "Log" => real(f32::ln, f64::ln),
        "Sigmoid" => real(logistic, sigmoid),
        "Tanh" => real(f32::tanh, f64::tanh),
        "Reciprocal" => real(|x| 1.0 / x, |x| 1.0 / x),
        "Floor" => real(f32::floor, f64::floor),
        "Ceil" => real(f32::ceil, f64::ceil),
        "Round" => real(f32::round_ties_even, f64::round_ties_even),
        other => return Err(format!("{other} is no operator of one value")),
    }))
}

fn sign_single(x: f32) -> f32 {
    if x == 0.0 || x.is_nan() { x } else { x.signum() }
}

fn sign_double(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x } else { x.signum() }
}

impl Operator for Unary {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let elements = match (&value.elements, self) {
            (Elements::F32(items), Self { single: Some(apply), .. }) => Elements::F32(items.iter().map(|x| apply(*x)).collect()),
            (Elements::F64(items), Self { double: Some(apply), .. }) => Elements::F64(items.iter().map(|x| apply(*x)).collect()),
            (Elements::I64(items), Self { whole: Some(apply), .. }) => Elements::I64(items.iter().map(|x| apply(*x)).collect()),
            (Elements::I32(items), Self { whole: Some(apply), .. }) => {
                Elements::I32(items.iter().map(|x| apply(i64::from(*x)) as i32).collect())
            }
            (other, _) => return Err(format!("takes no {}", other.datatype().name())),
        };
        Ok(vec![Value::new(&value.shape, elements)?])
    }
}

impl Operator for Not {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let Elements::Bool(items) = &value.elements else { return Err("takes BOOL only".into()) };
        Ok(vec![Value::new(&value.shape, Elements::Bool(items.iter().map(|x| !x).collect()))?])
    }
}

impl Operator for IsNan {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let missing = match &value.elements {
            Elements::F32(items) => items.iter().map(|x| x.is_nan()).collect(),
            Elements::F64(items) => items.iter().map(|x| x.is_nan()).collect(),
            other => return Err(format!("takes no {}", other.datatype().name())),
        };
        Ok(vec![Value::new(&value.shape, Elements::Bool(missing))?])
    }
}

/// The ends, where attributes give them.
#[derive(Debug)]
struct Clip {
    least: Option<f32>,
    most: Option<f32>,
}

/// `Clip`: ends are inputs, or attributes before opset 11.
pub(crate) fn clip(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(Clip { least: node.float("min")?, most: node.float("max")? }))
}

fn clipped<T: Copy + PartialOrd>(items: &[T], least: Option<&[T]>, most: Option<&[T]>) -> Vec<T> {
    let (least, most) = (least.and_then(<[T]>::first).copied(), most.and_then(<[T]>::first).copied());
    let clip = |x: &T| {
        let x = least.filter(|least| *x < *least).unwrap_or(*x);
        most.filter(|most| x > *most).unwrap_or(x)
    };
    items.iter().map(clip).collect()
}

impl Operator for Clip {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let end = |at: usize| inputs.get(at).copied().flatten().map(|value| &value.elements);
        macro_rules! of_kind {
            ($kind:ident, $items:expr) => {{
                let end = |at| match end(at) {
                    None => Ok(None),
                    Some(Elements::$kind(items)) => Ok(Some(items.as_slice())),
                    Some(other) => Err(format!("has an end that is {}", other.datatype().name())),
                };
                Elements::$kind(clipped($items, end(1)?, end(2)?))
            }};
        }
        let elements = match &value.elements {
            Elements::F32(items) if inputs.len() < 2 => {
                let (least, most) = (self.least.map(|x| [x]), self.most.map(|x| [x]));
                Elements::F32(clipped(items, least.as_ref().map(|x| &x[..]), most.as_ref().map(|x| &x[..])))
            }
            Elements::F32(items) => of_kind!(F32, items),
            Elements::F64(items) => of_kind!(F64, items),
            Elements::I64(items) => of_kind!(I64, items),
            Elements::I32(items) => of_kind!(I32, items),
            other => return Err(format!("takes no {}", other.datatype().name())),
        };
        Ok(vec![Value::new(&value.shape, elements)?])
    }
}
