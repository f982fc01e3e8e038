//! Properties of an inference request's readers on any bytes, shared by the replayed corpora and the fuzz targets; for tests only.

use std::collections::HashSet;

use bytes::Bytes;
use lapwing_model::service::About;
use lapwing_onnx::tensor::{Datatype, TensorSpec};

use super::bounds::{MAX_AXES, MAX_TENSORS, expansion};
use super::in_flight::InferenceRequest;
use super::{grpc, rest};

/// The JSON's length that means a body without binary data.
const NO_LENGTH: u16 = u16::MAX;

/// Whether any body of REST is refused, or is a request within the bounds. The first two bytes are the JSON's length, little-endian.
#[must_use]
pub fn rest(bytes: &[u8]) -> bool {
    let Some((length, body)) = bytes.split_first_chunk::<2>() else { return true };
    let length = u16::from_le_bytes(*length);
    let json_length = (length != NO_LENGTH).then_some(usize::from(length));
    let read = rest::decoded(&Bytes::copy_from_slice(body), json_length, &about());
    read.map_or_else(|error| !error.to_string().is_empty(), |read| is_bounded(&read, body.len()))
}

/// Whether any message of gRPC is refused, or is a request within the bounds.
#[must_use]
pub fn grpc(bytes: &[u8]) -> bool {
    let read = grpc::decoded(Bytes::copy_from_slice(bytes));
    read.map_or_else(|error| !error.to_string().is_empty(), |read| is_bounded(&read, bytes.len()))
}

/// Whether the tensors have the bytes that their shapes say, each name is there once, and all take no more memory than they may.
fn is_bounded(read: &InferenceRequest, received: usize) -> bool {
    let of_names = |names: &[&String]| names.len() <= MAX_TENSORS && names.iter().collect::<HashSet<_>>().len() == names.len();
    let inputs: Vec<_> = read.inputs.iter().map(|tensor| &tensor.name).collect();
    let outputs: Vec<_> = read.outputs.iter().collect();
    let has_size = |tensor: &lapwing_onnx::tensor::Tensor| {
        let elements = tensor.shape.iter().try_fold(1_usize, |product, axis| product.checked_mul(*axis));
        tensor.shape.len() <= MAX_AXES && elements.is_some_and(|elements| tensor.datatype.check(elements, &tensor.data).is_ok())
    };
    let held: usize = read.inputs.iter().map(|tensor| tensor.data.len()).sum();
    of_names(&inputs)
        && of_names(&outputs)
        && read.inputs.iter().all(has_size)
        && held <= expansion(received).saturating_add(received)
}

/// A model that has outputs of a datatype that JSON has and of one that it has not.
fn about() -> About {
    let port = |name: &str, datatype| TensorSpec { name: name.to_owned(), datatype, shape: vec![None] };
    About {
        name: "m".to_owned(),
        version: "1".to_owned(),
        executor: lapwing_model::ExecutorName::Plan,
        unsupported: None,
        inputs: vec![port("x", Datatype::Fp32)],
        outputs: vec![port("y", Datatype::Fp32), port("half", Datatype::Fp16)],
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Fewer files are no corpus: the folder was lost.
    const FEWEST: usize = 10;

    /// Runs the law on each file of a fuzz target's corpus.
    fn replay(target: &str, holds: impl Fn(&[u8]) -> bool) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= FEWEST, "{}: {} files", folder.display(), files.len());
        let broken: Vec<_> = files.iter().filter(|file| !holds(&std::fs::read(file).unwrap())).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }

    #[test]
    fn the_corpora_of_the_fuzz_targets_hold() {
        replay("engine_rest", super::rest);
        replay("engine_grpc", super::grpc);
    }
}
