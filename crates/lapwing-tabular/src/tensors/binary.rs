//! Operators of two values whose shapes are broadcast: arithmetic, comparisons and logic; and `Where`.

use bytes::Bytes;

use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, required};
use crate::value::{Elements, Value, count};

/// Which operator.
#[derive(Clone, Copy, Debug)]
enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Max,
    Min,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    And,
    Or,
    Xor,
}

/// `Add` … `Xor`, by the node's operator.
pub(crate) fn binary(node: Attributes<'_>, inputs: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    use Binary::{Add, And, Div, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Max, Min, Mul, Or, Pow, Sub, Xor};
    let known = [Add, Sub, Mul, Div, Pow, Max, Min, Less, LessOrEqual, Greater, GreaterOrEqual, Equal, And, Or, Xor];
    let takes_many = matches!(node.node.op_type.as_str(), "Max" | "Min" | "Sum");
    if (inputs.len() != 2 && !takes_many) || inputs.is_empty() {
        return Err(format!("has {} inputs", inputs.len()));
    }
    if node.opset < 7 {
        return Err("broadcasts as before opset 7".into());
    }
    let name = if node.node.op_type == "Sum" { "Add" } else { &node.node.op_type };
    let found = known.into_iter().find(|operator| format!("{operator:?}") == name);
    Ok(Box::new(found.ok_or("is no operator of two values")?))
}

/// The shape that several broadcast to.
pub(crate) fn broadcast(shapes: &[&[usize]]) -> Result<Vec<usize>, Reason> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut out = vec![1; rank];
    for shape in shapes {
        for (length, wanted) in shape.iter().rev().zip(out.iter_mut().rev()) {
            if *wanted == 1 {
                *wanted = *length;
            } else if *length != 1 && *length != *wanted {
                return Err(format!("shapes {shapes:?} cannot be broadcast"));
            }
        }
    }
    count(&out)?;
    Ok(out)
}

/// For each element of `out`, the place of the element of `shape` that is broadcast to it.
pub(crate) fn places(shape: &[usize], out: &[usize]) -> Vec<usize> {
    let total: usize = out.iter().product();
    if shape == out {
        return (0..total).collect();
    }
    let mut places = vec![0; total];
    let (mut repeat, mut stride) = (1, 1);
    for (axis, length) in out.iter().enumerate().rev() {
        let own = (axis + shape.len()).checked_sub(out.len()).map_or(1, |own| shape[own]);
        if own > 1 {
            for (at, place) in places.iter_mut().enumerate() {
                *place += at / repeat % length * stride;
            }
            stride *= own;
        }
        repeat *= length;
    }
    places
}

/// Combines elements pair by pair.
fn pairs<T, O>(left: &[T], right: &[T], shapes: [&[usize]; 3], combine: impl Fn(&T, &T) -> O) -> Vec<O> {
    let [left_shape, right_shape, out] = shapes;
    match (left, right) {
        _ if left_shape == right_shape => left.iter().zip(right).map(|(a, b)| combine(a, b)).collect(),
        (left, [only]) if left_shape == out => left.iter().map(|a| combine(a, only)).collect(),
        _ => {
            let (left_places, right_places) = (places(left_shape, out), places(right_shape, out));
            left_places.iter().zip(&right_places).map(|(a, b)| combine(&left[*a], &right[*b])).collect()
        }
    }
}

/// Numbers that are added, compared, and raised to powers.
trait Arithmetic: Copy + PartialOrd {
    fn compute(self, operator: Binary, other: Self) -> Option<Self>;
}

macro_rules! floats {
    ($type:ty) => {
        impl Arithmetic for $type {
            fn compute(self, operator: Binary, other: Self) -> Option<Self> {
                Some(match operator {
                    Binary::Add => self + other,
                    Binary::Sub => self - other,
                    Binary::Mul => self * other,
                    Binary::Div => self / other,
                    Binary::Pow if other == 2.0 => self * self,
                    Binary::Pow if other == 3.0 => self * self * self,
                    Binary::Pow => self.powf(other),
                    // a NaN stays, unlike in Rust's own
                    Binary::Max if self.is_nan() || self > other => self,
                    Binary::Min if self.is_nan() || self < other => self,
                    Binary::Max | Binary::Min => other,
                    _ => return None,
                })
            }
        }
    };
}

macro_rules! integers {
    ($type:ty) => {
        impl Arithmetic for $type {
            fn compute(self, operator: Binary, other: Self) -> Option<Self> {
                Some(match operator {
                    Binary::Add => self.wrapping_add(other),
                    Binary::Sub => self.wrapping_sub(other),
                    Binary::Mul => self.wrapping_mul(other),
                    // a division by zero is refused before
                    Binary::Div => self.checked_div(other).unwrap_or(<$type>::MIN),
                    Binary::Pow => u32::try_from(other).map_or(0, |exponent| self.wrapping_pow(exponent)),
                    Binary::Max => self.max(other),
                    Binary::Min => self.min(other),
                    _ => return None,
                })
            }
        }
    };
}

floats!(f32);
floats!(f64);
integers!(i64);
integers!(i32);

fn compared<T: PartialOrd>(operator: Binary) -> Option<fn(&T, &T) -> bool> {
    Some(match operator {
        Binary::Less => |a, b| a < b,
        Binary::LessOrEqual => |a, b| a <= b,
        Binary::Greater => |a, b| a > b,
        Binary::GreaterOrEqual => |a, b| a >= b,
        Binary::Equal => |a, b| a == b,
        _ => return None,
    })
}

impl Binary {
    /// Computes or compares; a comparison makes truth values.
    fn numbers<T: Arithmetic>(
        self,
        left: &[T],
        right: &[T],
        shapes: [&[usize]; 3],
        wrap: fn(Vec<T>) -> Elements,
    ) -> Result<Elements, Reason> {
        if let Some(compare) = compared::<T>(self) {
            return Ok(Elements::Bool(pairs(left, right, shapes, compare)));
        }
        let made: Option<Vec<T>> = pairs(left, right, shapes, |a, b| a.compute(self, *b)).into_iter().collect();
        Ok(wrap(made.ok_or("is not defined for numbers")?))
    }
}

impl Operator for Binary {
    /// `Sum`, `Max` and `Min` take any number of values, from left to right.
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let first = required(inputs, 0)?;
        let Some(_) = inputs.get(1) else { return Ok(vec![first.clone()]) };
        let mut made = self.of_two(first, required(inputs, 1)?)?;
        for at in 2..inputs.len() {
            made = self.of_two(&made, required(inputs, at)?)?;
        }
        Ok(vec![made])
    }
}

impl Binary {
    fn of_two(self, left: &Value, right: &Value) -> Result<Value, Reason> {
        let out = broadcast(&[&left.shape, &right.shape])?;
        let shapes = [&left.shape[..], &right.shape[..], &out[..]];
        let is_division = matches!(self, Self::Div);
        let by_zero = || Err::<Value, _>("divides a whole number by zero".to_owned());
        let elements = match (&left.elements, &right.elements) {
            (Elements::F32(a), Elements::F32(b)) => self.numbers(a, b, shapes, Elements::F32)?,
            (Elements::F64(a), Elements::F64(b)) => self.numbers(a, b, shapes, Elements::F64)?,
            (Elements::I64(_), Elements::I64(b)) if is_division && b.contains(&0) => return by_zero(),
            (Elements::I64(a), Elements::I64(b)) => self.numbers(a, b, shapes, Elements::I64)?,
            (Elements::I32(_), Elements::I32(b)) if is_division && b.contains(&0) => return by_zero(),
            (Elements::I32(a), Elements::I32(b)) => self.numbers(a, b, shapes, Elements::I32)?,
            // an exponent may be of another type
            (Elements::F32(a), _) if matches!(self, Self::Pow) => self.numbers(a, &right.to_f32()?, shapes, Elements::F32)?,
            (Elements::Bool(a), Elements::Bool(b)) => Elements::Bool(match self {
                Self::And => pairs(a, b, shapes, |a, b| *a && *b),
                Self::Or => pairs(a, b, shapes, |a, b| *a || *b),
                Self::Xor => pairs(a, b, shapes, |a, b| a != b),
                Self::Equal => pairs(a, b, shapes, |a, b| a == b),
                _ => return Err("is not defined for BOOL".into()),
            }),
            (Elements::Text(a), Elements::Text(b)) if matches!(self, Self::Equal) => {
                Elements::Bool(pairs(a, b, shapes, |a: &Bytes, b: &Bytes| a == b))
            }
            (a, b) => return Err(format!("takes no {} and {}", a.datatype().name(), b.datatype().name())),
        };
        Value::new(&out, elements)
    }
}

#[derive(Debug)]
struct Where;

/// `Where`.
pub(crate) fn choose(_: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(Where))
}

impl Operator for Where {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let (condition, yes, no) = (required(inputs, 0)?, required(inputs, 1)?, required(inputs, 2)?);
        let Elements::Bool(conditions) = &condition.elements else { return Err("has a condition that is not BOOL".into()) };
        let out = broadcast(&[&condition.shape, &yes.shape, &no.shape])?;
        let conditions = places(&condition.shape, &out).into_iter().map(|at| conditions[at]);
        let (yes_places, no_places) = (places(&yes.shape, &out), places(&no.shape, &out));
        let places = conditions.zip(yes_places.into_iter().zip(no_places));
        macro_rules! chosen {
            ($kind:ident, $a:expr, $b:expr) => {
                Elements::$kind(
                    places.map(|(holds, (a, b))| if holds { Clone::clone(&$a[a]) } else { Clone::clone(&$b[b]) }).collect(),
                )
            };
        }
        let elements = match (&yes.elements, &no.elements) {
            (Elements::F32(a), Elements::F32(b)) => chosen!(F32, a, b),
            (Elements::F64(a), Elements::F64(b)) => chosen!(F64, a, b),
            (Elements::I64(a), Elements::I64(b)) => chosen!(I64, a, b),
            (Elements::I32(a), Elements::I32(b)) => chosen!(I32, a, b),
            (Elements::Bool(a), Elements::Bool(b)) => chosen!(Bool, a, b),
            (Elements::Text(a), Elements::Text(b)) => chosen!(Text, a, b),
            (a, b) => return Err(format!("chooses between {} and {}", a.datatype().name(), b.datatype().name())),
        };
        Ok(vec![Value::new(&out, elements)?])
    }
}
