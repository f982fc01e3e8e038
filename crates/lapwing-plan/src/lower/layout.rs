//! The layout of a map's result, derived from its operands.

use lapwing_onnx::shaped::Constant;

use super::constant::{floats, permuted};
use super::form::{Axis, Matrix};

/// An operand of a map.
#[derive(Debug)]
pub(crate) enum Operand {
    Matrix(Matrix),
    Const(Constant),
}

/// The layout of a map's result: that of its widest operand, with a row for each token if any operand has one.
pub(crate) fn common(operands: &[Operand]) -> Result<Matrix, String> {
    let matrices: Vec<&Matrix> =
        operands.iter().filter_map(|o| if let Operand::Matrix(m) = o { Some(m) } else { None }).collect();
    let widest = matrices.iter().max_by_key(|matrix| matrix.sizes.len()).ok_or("has no matrix operand")?;
    let mut layout = (*widest).clone();
    for matrix in &matrices {
        if matrix.axes.len() != layout.axes.len() {
            return Err("works on tensors of different rank".into());
        }
        if !matrix.sizes.is_empty() && (matrix.sizes != widest.sizes || matrix.columns() != widest.columns()) {
            return Err("works on columns of different layouts".into());
        }
        for (place, axis) in matrix.axes.iter().enumerate() {
            match (layout.axes[place], *axis) {
                (Axis::One, Axis::Batch | Axis::Token | Axis::Context | Axis::Spread(_)) => layout.axes[place] = *axis,
                (Axis::Spread(_), Axis::Batch | Axis::Token | Axis::Context) => layout.axes[place] = *axis,
                (own, other) if own == other || matches!(other, Axis::One | Axis::Spread(_)) => {}
                (own, other) => return Err(format!("combines {own:?} with {other:?}")),
            }
        }
    }
    if layout.axes.contains(&Axis::Token) && layout.axes.contains(&Axis::Context) {
        return Err("has a number for each token and each of the context".into());
    }
    // a constant may provide the columns
    if layout.sizes.is_empty() {
        for operand in operands {
            let Operand::Const(tensor) = operand else { continue };
            if tensor.elements() == 1 {
                continue;
            }
            if !layout.sizes.is_empty() || tensor.shape.len() != layout.axes.len() {
                return Err("broadcasts over columns of several constants".into());
            }
            for (place, length) in tensor.shape.iter().enumerate().filter(|(_, length)| **length > 1) {
                if layout.axes[place] != Axis::One && layout.axes[place] != Axis::Spread(Some(*length)) {
                    return Err(format!("has a constant along {:?}", layout.axes[place]));
                }
                layout.sizes.push(*length);
                layout.axes[place] = Axis::Column(layout.sizes.len() - 1);
            }
        }
    }
    let is_alike = |operand: &Operand| match operand {
        Operand::Matrix(matrix) => matrix.sizes == layout.sizes && matrix.rows() == layout.rows(),
        Operand::Const(tensor) => tensor.elements() == 1,
    };
    if layout.is_by_head() && !operands.iter().all(is_alike) {
        return Err("works on keys or values of the past in a way that no attention does".into());
    }
    Ok(layout)
}

/// A constant as a row in the layout of the matrix.
pub(crate) fn row(tensor: &Constant, layout: &Matrix) -> Result<Vec<f32>, String> {
    if tensor.shape.len() != layout.axes.len() {
        return Err("has a constant of another rank".into());
    }
    let columns = layout.columns();
    for (place, length) in tensor.shape.iter().enumerate() {
        let fits = match layout.axes[place] {
            Axis::Column(column) => *length == layout.sizes[column] || *length == 1,
            _ => *length == 1,
        };
        if !fits {
            return Err(format!("has a constant of {length} along {:?}", layout.axes[place]));
        }
    }
    let mut order = columns.clone();
    order.extend((0..tensor.shape.len()).filter(|place| !columns.contains(place)));
    let turned = permuted(tensor, &order)?;
    let lengths = &turned.shape[..columns.len()];
    let data = floats(&turned)?;
    let at = |index: usize| {
        let (mut rest, mut offset, mut stride) = (index, 0, 1);
        for (size, length) in layout.sizes.iter().zip(lengths).rev() {
            offset += (rest % size) % length * stride;
            stride *= length;
            rest /= size;
        }
        offset
    };
    Ok((0..layout.width()).map(|index| data[at(index)]).collect())
}
