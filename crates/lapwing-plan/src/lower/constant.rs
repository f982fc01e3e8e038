//! Constants of a model: read as numbers, and with their axes changed.

use bytes::Bytes;
use lapwing_onnx::shaped::Constant;
use lapwing_onnx::tensor::Datatype;

/// The elements as float32, rounded where they are of another type.
pub(crate) fn floats(constant: &Constant) -> Result<Vec<f32>, String> {
    if constant.datatype == Datatype::Fp32 {
        // weights: without a call for each
        return Ok(constant.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect());
    }
    let numbers = constant.floats().map(|numbers| numbers.map(|x| x as f32).collect());
    numbers.ok_or_else(|| format!("has a constant of {}, and not of numbers", constant.datatype.name()))
}

/// The elements of a constant of whole numbers, or of truth values.
pub(crate) fn integers(constant: &Constant) -> Result<Vec<i64>, String> {
    let numbers = constant.ints().map(Iterator::collect);
    numbers.ok_or_else(|| format!("has a constant of {}, and not of whole numbers", constant.datatype.name()))
}

/// The only element of a constant, if it has exactly one.
pub(crate) fn scalar(constant: &Constant) -> Option<f32> {
    if constant.elements() != 1 {
        return None;
    }
    floats(constant).ok()?.first().copied()
}

/// The same elements in other axes.
pub(crate) fn with_shape(constant: &Constant, shape: Vec<usize>) -> Constant {
    Constant { shape, ..constant.clone() }
}

/// With axes of length one before its own, so that it has `rank` of them.
pub(crate) fn of_rank(constant: &Constant, rank: usize) -> Constant {
    let mut shape = vec![1; rank.saturating_sub(constant.shape.len())];
    shape.extend(&constant.shape);
    with_shape(constant, shape)
}

/// With its axes in this order.
pub(crate) fn permuted(constant: &Constant, order: &[usize]) -> Result<Constant, String> {
    let bytes = constant.datatype.bytes().ok_or("has a constant of strings")?;
    let rank = constant.shape.len();
    let mut strides = vec![bytes; rank];
    for axis in (1..rank).rev() {
        strides[axis - 1] = strides[axis] * constant.shape[axis];
    }
    let shape: Vec<usize> = order.iter().map(|axis| constant.shape[*axis]).collect();
    let strides: Vec<usize> = order.iter().map(|axis| strides[*axis]).collect();
    let mut data = Vec::with_capacity(constant.data.len());
    let mut place = vec![0; rank];
    for _ in 0..constant.elements() {
        let from: usize = place.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        data.extend_from_slice(&constant.data[from..from + bytes]);
        for axis in (0..rank).rev() {
            place[axis] += 1;
            if place[axis] < shape[axis] {
                break;
            }
            place[axis] = 0;
        }
    }
    Ok(Constant { datatype: constant.datatype, shape, data: data.into() })
}

/// The elements `from..to` of an axis.
pub(crate) fn part(constant: &Constant, axis: usize, from: usize, to: usize) -> Result<Constant, String> {
    let bytes = constant.datatype.bytes().ok_or("has a constant of strings")?;
    let each: usize = constant.shape[axis + 1..].iter().product::<usize>() * bytes;
    let length = constant.shape[axis];
    let (from, to) = (from.min(length), to.min(length).max(from.min(length)));
    let blocks = constant.data.chunks_exact((length * each).max(1));
    let data: Vec<u8> = blocks.flat_map(|block| &block[from * each..to * each]).copied().collect();
    let mut shape = constant.shape.clone();
    shape[axis] = to - from;
    Ok(Constant { datatype: constant.datatype, shape, data: data.into() })
}

/// A float32 constant.
pub(crate) fn of_floats(shape: Vec<usize>, numbers: &[f32]) -> Constant {
    let data: Bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>().into();
    Constant { datatype: Datatype::Fp32, shape, data }
}

/// A constant of whole numbers of 64 bits.
pub(crate) fn of_integers(shape: Vec<usize>, numbers: impl IntoIterator<Item = i64>) -> Constant {
    let data = numbers.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>().into();
    Constant { datatype: Datatype::Int64, shape, data }
}

/// A constant of one whole number.
pub(crate) fn of_integer(number: i64) -> Constant {
    of_integers(Vec::new(), [number])
}

/// A constant of another type. A number becomes a truth value as in C.
pub(crate) fn cast(constant: &Constant, to: Datatype) -> Result<Constant, String> {
    let is_whole = |kind: Datatype| {
        matches!(kind, Datatype::Bool | Datatype::Int8 | Datatype::Int16 | Datatype::Int32 | Datatype::Int64 | Datatype::Uint8)
    };
    let shape = constant.shape.clone();
    match to {
        to if to == constant.datatype => Ok(constant.clone()),
        Datatype::Fp32 => Ok(of_floats(shape, &floats(constant)?)),
        Datatype::Int64 if is_whole(constant.datatype) => Ok(of_integers(shape, integers(constant)?)),
        Datatype::Bool => {
            let data = floats(constant)?.into_iter().map(|x| u8::from(x != 0.0)).collect::<Vec<u8>>().into();
            Ok(Constant { datatype: to, shape, data })
        }
        _ => Err(format!("makes {} of a constant of {}", to.name(), constant.datatype.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_turned_and_cut() {
        let numbers: Vec<f32> = (0..6).map(|x| x as f32).collect();
        let rows = of_floats(vec![2, 3], &numbers);
        let turned = permuted(&rows, &[1, 0]).unwrap();
        assert_eq!((turned.shape.clone(), floats(&turned).unwrap()), (vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
        assert_eq!(floats(&part(&rows, 1, 1, 9).unwrap()).unwrap(), [1.0, 2.0, 4.0, 5.0]);
        assert_eq!(part(&rows, 0, 2, 2).unwrap().shape, [0, 3]);
        assert_eq!(of_rank(&rows, 4).shape, [1, 1, 2, 3]);
        assert_eq!(scalar(&of_integer(-7)), Some(-7.0));
        assert!(cast(&rows, Datatype::Int64).is_err());
    }
}
