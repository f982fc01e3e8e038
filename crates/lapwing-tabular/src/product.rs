//! Products of small matrices: `MatMul`, `Gemm`, and the dot products that linear models and support vectors are made of.

use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, TabularCost, moved, required};
use crate::value::{Elements, Value};

/// The most multiplications of one product.
const MOST_PRODUCTS: usize = 1 << 32;

/// The dot product of each row of `left` with each of `right`, both of `width` columns, row-major.
pub(crate) fn dots(left: &[f32], right: &[f32], width: usize) -> Vec<f32> {
    let (left, right) = (left.chunks_exact(width.max(1)), right.chunks_exact(width.max(1)));
    left.flat_map(|row| right.clone().map(move |other| dot(row, other))).collect()
}

/// A dot product in eight sums, which the compiler keeps side by side.
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let (left, left_rest) = left.as_chunks::<8>();
    let (right, right_rest) = right.as_chunks::<8>();
    let mut sums = [0.0_f32; 8];
    for (left, right) in left.iter().zip(right) {
        for lane in 0..8 {
            sums[lane] += left[lane] * right[lane];
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    sums.iter().sum::<f32>() + rest
}

/// `left` (rows × inner) times `right` (inner × columns).
fn multiply<T: Copy + Default + std::ops::Mul<Output = T> + std::ops::AddAssign>(
    left: &[T],
    right: &[T],
    inner: usize,
    columns: usize,
) -> Vec<T> {
    let mut out = Vec::with_capacity(left.len().checked_div(inner).unwrap_or(0) * columns);
    for row in left.chunks_exact(inner.max(1)) {
        let from = out.len();
        out.resize(from + columns, T::default());
        for (factor, other) in row.iter().zip(right.chunks_exact(columns.max(1))) {
            out[from..].iter_mut().zip(other).for_each(|(sum, number)| *sum += *factor * *number);
        }
    }
    out
}

fn check(rows: usize, inner: (usize, usize), columns: usize) -> Result<(), Reason> {
    if inner.0 != inner.1 {
        return Err(format!("multiplies rows of {} with columns of {}", inner.0, inner.1));
    }
    let products = rows.checked_mul(inner.0).and_then(|products| products.checked_mul(columns));
    if products.is_none_or(|products| products > MOST_PRODUCTS) {
        return Err(format!("{rows} × {} × {columns} products are more than {MOST_PRODUCTS}, which is the bound", inner.0));
    }
    Ok(())
}

/// The product of two matrices of one type.
fn product(left: (&Elements, [usize; 2]), right: (&Elements, [usize; 2])) -> Result<Value, Reason> {
    let ((left, [rows, inner]), (right, [depth, columns])) = (left, right);
    check(rows, (inner, depth), columns)?;
    let elements = match (left, right) {
        (Elements::F32(left), Elements::F32(right)) => Elements::F32(multiply(left, right, inner, columns)),
        (Elements::F64(left), Elements::F64(right)) => Elements::F64(multiply(left, right, inner, columns)),
        (left, right) => return Err(format!("multiplies {} with {}", left.datatype().name(), right.datatype().name())),
    };
    Value::new(&[rows, columns], elements)
}

#[derive(Debug)]
struct MatMul;

/// `MatMul` of matrices, or of a matrix and a vector.
pub(crate) fn matmul(_: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(MatMul))
}

impl Operator for MatMul {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let (left, right) = (required(inputs, 0)?, required(inputs, 1)?);
        let left_shape = match *left.shape {
            [inner] => [1, inner],
            [rows, inner] => [rows, inner],
            _ => return Err(format!("multiplies values of shape {:?}; only matrices are taken", left.shape)),
        };
        let right_shape = match *right.shape {
            [inner] => [inner, 1],
            [inner, columns] => [inner, columns],
            _ => return Err(format!("multiplies values of shape {:?}; only matrices are taken", right.shape)),
        };
        let mut made = product((&left.elements, left_shape), (&right.elements, right_shape))?;
        if left.shape.len() == 1 {
            made.shape.remove(0);
        }
        if right.shape.len() == 1 {
            made.shape.pop();
        }
        Ok(vec![made])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        let inner = required(inputs, 0).map_or(0, |value| value.shape.last().copied().unwrap_or(0) as u64);
        let made: u64 = outputs.iter().map(|value| value.elements.len() as u64).sum();
        TabularCost { comparisons: 0, flops: 2 * inner * made, bytes: moved(inputs, outputs) }
    }
}

#[derive(Debug)]
struct Gemm {
    alpha: f32,
    beta: f32,
    transposes: [bool; 2],
}

/// `Gemm`.
pub(crate) fn gemm(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let transposes = [node.int("transA")?.unwrap_or(0) != 0, node.int("transB")?.unwrap_or(0) != 0];
    Ok(Box::new(Gemm { alpha: node.float("alpha")?.unwrap_or(1.0), beta: node.float("beta")?.unwrap_or(1.0), transposes }))
}

fn transposed(value: &Value, is_transposed: bool) -> Result<(Vec<f32>, [usize; 2]), Reason> {
    let [rows, columns] = *value.shape else { return Err(format!("multiplies values of shape {:?}", value.shape)) };
    let items = value.f32s()?;
    if !is_transposed {
        return Ok((items.to_vec(), [rows, columns]));
    }
    let turned = (0..columns).flat_map(|column| (0..rows).map(move |row| items[row * columns + column])).collect();
    Ok((turned, [columns, rows]))
}

impl Operator for Gemm {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let (left, left_shape) = transposed(required(inputs, 0)?, self.transposes[0])?;
        let (right, right_shape) = transposed(required(inputs, 1)?, self.transposes[1])?;
        let mut made = product((&Elements::F32(left), left_shape), (&Elements::F32(right), right_shape))?;
        let (rows, columns) = (left_shape[0], right_shape[1]);
        let Elements::F32(items) = &mut made.elements else { return Err("makes no FP32".into()) };
        items.iter_mut().for_each(|item| *item *= self.alpha);
        if let Some(added) = inputs.get(2).copied().flatten() {
            let numbers = added.f32s()?;
            let (row_step, column_step) = match *added.shape {
                [] | [1] | [1, 1] => (0, 0),
                [length] if length == columns => (0, 1),
                [1, length] if length == columns => (0, 1),
                [length, 1] if length == rows => (1, 0),
                [length, width] if (length, width) == (rows, columns) => (columns, 1),
                _ => return Err(format!("adds a value of shape {:?} to {rows} × {columns}", added.shape)),
            };
            for (at, item) in items.iter_mut().enumerate() {
                *item += self.beta * numbers[at / columns * row_step + at % columns * column_step];
            }
        }
        Ok(vec![made])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        let inner =
            required(inputs, 0).map_or(0, |value| value.shape.get(usize::from(!self.transposes[0])).copied().unwrap_or(0));
        let made: u64 = outputs.iter().map(|value| value.elements.len() as u64).sum();
        TabularCost { comparisons: 0, flops: (2 * inner as u64 + 1) * made, bytes: moved(inputs, outputs) }
    }
}
