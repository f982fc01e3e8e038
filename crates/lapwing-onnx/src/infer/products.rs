//! Matrix products.

use rten_shape_inference::{InferShapes, InferShapesContext, InferShapesError, SymTensor, SymbolGen, ops};

use super::elementwise::broadcast_two;
use super::lengths::{Symbols, shown};
use crate::shaped::Length;
use crate::view::{Shapes, View};

/// `MatMul`.
pub(crate) fn matmul(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    of_two(view.required(0)?, view.required(1)?, symbols)
}

/// `QLinearMatMul`: each input is followed by its scale and its zero point.
pub(crate) fn quantised_matmul(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    of_two(view.required(0)?, view.required(3)?, symbols)
}

/// `FusedMatMul`: either input may be transposed.
pub(crate) fn fused_matmul(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let is_batched = |name: &str| view.node.int(name).unwrap_or(0) != 0;
    if is_batched("transBatchA") || is_batched("transBatchB") {
        return Ok(vec![None]);
    }
    let turned = |at: usize, name: &str| {
        Ok::<_, String>(view.required(at)?.map(|shape| {
            let mut shape = shape.to_vec();
            if let (true, [.., a, b]) = (view.node.int(name).unwrap_or(0) != 0, &mut shape[..]) {
                std::mem::swap(a, b);
            }
            shape
        }))
    };
    of_two(turned(0, "transA")?.as_deref(), turned(1, "transB")?.as_deref(), symbols)
}

fn of_two(one: Option<&[Length]>, other: Option<&[Length]>, symbols: &mut Symbols) -> Shapes {
    let (Some(one), Some(other)) = (one, other) else { return Ok(vec![None]) };
    let fails = || format!("the shapes {} and {} cannot be multiplied", shown(one), shown(other));
    // a vector is a row on the left, and a column on the right
    let (outer_a, rows, inner_a) = match one {
        [] => return Err(fails()),
        [inner] => (&[][..], None, inner),
        [outer @ .., rows, inner] => (outer, Some(rows), inner),
    };
    let (outer_b, inner_b, columns) = match other {
        [] => return Err(fails()),
        [inner] => (&[][..], inner, None),
        [outer @ .., inner, columns] => (outer, inner, Some(columns)),
    };
    if matches!((inner_a, inner_b), (Length::Value(a), Length::Value(b)) if a != b) {
        return Err(fails());
    }
    let mut made = broadcast_two(outer_a, outer_b, symbols).map_err(|_| fails())?;
    made.extend(rows.into_iter().chain(columns).cloned());
    Ok(vec![Some(made)])
}

/// `Gemm`, and those that are made of it.
pub(crate) fn gemm(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    gemm_of(view, 0, 1, symbols)
}

/// `QGemm`: each input is followed by its scale and its zero point.
pub(crate) fn quantised_gemm(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    gemm_of(view, 0, 3, symbols)
}

fn gemm_of(view: &View<'_>, a: usize, b: usize, symbols: &mut Symbols) -> Shapes {
    let (a, b) = (view.required(a)?, view.required(b)?);
    let is_turned = |name: &str| view.node.int(name).unwrap_or(0) != 0;
    let sides = |shape: Option<&[Length]>, name: &str, symbols: &mut Symbols| match shape {
        None => Ok((symbols.fresh(), symbols.fresh())),
        Some([rows, columns]) if is_turned(name) => Ok((columns.clone(), rows.clone())),
        Some([rows, columns]) => Ok((rows.clone(), columns.clone())),
        Some(shape) => Err(format!("takes matrices, not the shape {}", shown(shape))),
    };
    let ((rows, inner), (other, columns)) = (sides(a, "transA", symbols)?, sides(b, "transB", symbols)?);
    if matches!((&inner, &other), (Length::Value(a), Length::Value(b)) if a != b) {
        let (a, b) = (a.unwrap_or(&[]), b.unwrap_or(&[]));
        let turns = format!("transA {}, transB {}", i32::from(is_turned("transA")), i32::from(is_turned("transB")));
        return Err(format!("the shapes {} and {} cannot be multiplied ({turns})", shown(a), shown(b)));
    }
    Ok(vec![Some(vec![rows, columns])])
}

/// `MatMulNBits`: the weight's rows are the attribute N.
pub(crate) fn matmul_bits(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let columns = view.node.int("N").ok_or("has no attribute N")?;
    let mut made = shape.to_vec();
    *made.last_mut().ok_or("multiplies a scalar")? = symbols.of(columns);
    Ok(vec![Some(made)])
}

/// `Einsum`.
pub(crate) fn einsum(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let equation = view.node.word("equation").ok_or("has no equation")?;
    let inputs: Vec<Option<SymTensor>> = (0..view.inputs.len())
        .map(|at| Some(view.shape(at).map_or_else(|| SymTensor::unknown(""), |shape| SymTensor::from_shape(shape.to_vec()))))
        .collect();
    let made = ops::Einsum { equation }.infer_shapes(InferShapesContext::new(&inputs), &mut SymbolGen::with_prefix("?e".into()));
    let shape = match made {
        Ok(made) => made.into_iter().next().and_then(|made| made.shape().map(Iterator::collect::<Vec<_>>)),
        Err(InferShapesError::IncorrectRank | InferShapesError::IncompatibleShapes) => {
            return Err(format!("its inputs do not have the axes of {equation:?}"));
        }
        Err(_) => None,
    };
    let one = Length::Value(1);
    // its own new symbols would be mistaken for those of other nodes
    let length = |length: Length| match &length {
        Length::Var(symbol) if symbol.synthetic && symbol.name.starts_with("?e") => symbols.fresh(),
        _ => symbols.mul(&length, &one),
    };
    Ok(vec![shape.map(|shape| shape.into_iter().map(length).collect())])
}
