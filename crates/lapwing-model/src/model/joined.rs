//! Calls that run as one where rows never touch: their tensors are laid end to end along the first axis, and the outputs cut at the same
//! rows, in the same memory. It knows nothing of the model; who calls it has seen that its rows are independent ([`super::batch_axis`]).

use bytes::{Bytes, BytesMut};

use super::executor::{Executor, Workspace};
use super::{BatchResult, EngineError};
use lapwing_engine::clock::Stamp;
use lapwing_onnx::tensor::{Tensor, slices};

/// Whether two calls have the same lengths but for their rows, and each has the same rows in all of its tensors: a tensor of one row that
/// stands for many would be laid beside the wrong ones.
pub(crate) fn fit(one: &[Tensor], other: &[Tensor]) -> bool {
    let rows = |call: &[Tensor]| call.first().and_then(|tensor| tensor.shape.first().copied());
    let fits = |(a, b): (&Tensor, &Tensor)| match (&a.shape[..], &b.shape[..]) {
        ([of_one, lengths @ ..], [of_other, others @ ..]) => {
            Some(*of_one) == rows(one) && Some(*of_other) == rows(other) && lengths == others
        }
        _ => false,
    };
    one.len() == other.len() && one.iter().zip(other).all(fits)
}

/// Runs calls that fit one another as one.
///
/// # Errors
///
/// As for [`Executor::run`]; [`EngineError::Run`] names an output that has not a row for each of the calls'.
pub(crate) fn run(
    executor: &dyn Executor,
    workspace: &mut Workspace,
    calls: &[&[Tensor]],
    wanted: &[bool],
) -> Result<BatchResult, EngineError> {
    let began = Stamp::now();
    let joined = join(calls);
    let joined_ns = began.elapsed();
    let mut ran = executor.run(workspace, &[&joined], wanted)?;
    ran.preprocessing_ns += joined_ns;
    let began = Stamp::now();
    let rows: Vec<usize> = calls.iter().map(|call| call.first().and_then(|t| t.shape.first().copied()).unwrap_or(1)).collect();
    let mut outputs: Vec<Vec<Tensor>> = calls.iter().map(|_| Vec::new()).collect();
    for (at, made) in ran.outputs.drain(..).flatten().enumerate() {
        let parts = if wanted.get(at) == Some(&false) {
            vec![made; calls.len()]
        } else {
            split(&made, &rows).map_err(|reason| EngineError::Run { reason: format!("output {}: {reason}", made.name) })?
        };
        outputs.iter_mut().zip(parts).for_each(|(of_call, part)| of_call.push(part));
    }
    ran.postprocessing_ns += began.elapsed();
    Ok(BatchResult { outputs, ..ran })
}

/// The tensors of calls that fit one another, end to end.
pub(crate) fn join(calls: &[&[Tensor]]) -> Vec<Tensor> {
    let Some((first, _)) = calls.split_first() else { return Vec::new() };
    let tensor = |(at, tensor): (usize, &Tensor)| {
        let pieces = || calls.iter().filter_map(|call| call.get(at));
        let mut data = BytesMut::with_capacity(pieces().map(|piece| piece.data.len()).sum());
        pieces().for_each(|piece| data.extend_from_slice(&piece.data));
        let mut shape = tensor.shape.clone();
        if let Some(rows) = shape.first_mut() {
            *rows = pieces().filter_map(|piece| piece.shape.first()).sum();
        }
        Tensor { name: tensor.name.clone(), datatype: tensor.datatype, shape, data: data.freeze() }
    };
    first.iter().enumerate().map(tensor).collect()
}

/// The parts of a tensor that have so many rows each; they share its memory.
///
/// # Errors
///
/// The tensor's shape, if it has other rows in all, and what is wrong with its data.
pub(crate) fn split(tensor: &Tensor, parts: &[usize]) -> Result<Vec<Tensor>, String> {
    let rows: usize = parts.iter().sum();
    let [first, lengths @ ..] = &tensor.shape[..] else { return Err(format!("is one number for a batch of {rows} rows")) };
    if *first != rows {
        return Err(format!("has the shape {:?} for a batch of {rows} rows", tensor.shape));
    }
    let in_row: usize = lengths.iter().product();
    let mut texts = slices(&tensor.data, rows * in_row);
    let mut at = 0;
    let part = |rows: &usize| {
        let elements = rows * in_row;
        let bytes = match tensor.datatype.bytes() {
            Some(width) => elements * width,
            None => {
                let of = |text: Result<&[u8], String>| Ok::<_, String>(tensor.datatype.least_bytes() + text?.len());
                texts.by_ref().take(elements).map(of).sum::<Result<usize, _>>()?
            }
        };
        let range = at..at + bytes;
        at = range.end;
        let short = || format!("has {} bytes, too few for {:?}", tensor.data.len(), tensor.shape);
        let data: Bytes = if at <= tensor.data.len() { tensor.data.slice(range) } else { return Err(short()) };
        let shape = std::iter::once(*rows).chain(lengths.iter().copied()).collect();
        Ok(Tensor { name: tensor.name.clone(), datatype: tensor.datatype, shape, data })
    };
    parts.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_onnx::tensor::{Datatype, text_data};

    #[test]
    fn what_is_joined_is_cut_as_it_was() {
        let call = |rows: usize, from: usize| {
            let texts: Vec<String> = (0..2 * rows).map(|at| "x".repeat(from + at)).collect();
            let numbers: Vec<f32> = (0..rows).map(|at| (from + at) as f32).collect();
            let text = Tensor { name: "t".into(), datatype: Datatype::Bytes, shape: vec![rows, 2], data: text_data(&texts) };
            vec![Tensor::f32("x", &[rows], &numbers), text]
        };
        let calls = [call(2, 0), call(1, 7), call(3, 9)];
        assert!(fit(&calls[0], &calls[1]) && fit(&calls[2], &calls[0]));
        let joined = join(&calls.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!((&joined[0].shape[..], &joined[1].shape[..]), (&[6][..], &[6, 2][..]));
        for (at, tensor) in joined.iter().enumerate() {
            let parts = split(tensor, &[2, 1, 3]).unwrap();
            assert!(parts.iter().zip(&calls).all(|(part, call)| *part == call[at]), "{parts:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_not_joined() {
        let of = |shape: &[usize]| Tensor::f32("x", shape, &vec![0.0; shape.iter().product()]);
        assert!(!fit(&[of(&[1, 3])], &[of(&[1, 4])]));
        assert!(!fit(&[of(&[])], &[of(&[])]));
        // one row of the second input stands for both of the first
        assert!(!fit(&[of(&[1, 3]), of(&[1])], &[of(&[2, 3]), of(&[1])]));
        assert_eq!(split(&of(&[3, 2]), &[1, 1]).unwrap_err(), "has the shape [3, 2] for a batch of 2 rows");
        assert_eq!(split(&of(&[]), &[1, 1]).unwrap_err(), "is one number for a batch of 2 rows");
        let short = Tensor { data: Bytes::new(), ..of(&[2, 2]) };
        assert_eq!(split(&short, &[1, 1]).unwrap_err(), "has 0 bytes, too few for [2, 2]");
        let text = Tensor { datatype: Datatype::Bytes, ..short };
        assert_eq!(split(&text, &[1, 1]).unwrap_err(), "element 0 of 4 has no length: 0 bytes are left");
    }
}
