//! What one request may ask for, whatever its bytes are: counts, and how much larger its decoded form may be than what was received.
//! docs/SECURITY.md lists the same numbers.

use std::collections::HashSet;

use super::error::{Bound, RequestError};
use lapwing_onnx::tensor::Tensor;

/// The most inputs, and the most requested outputs, of a request.
pub(crate) const MAX_TENSORS: usize = 1024;
/// The most axes of an input.
pub(crate) const MAX_AXES: usize = 32;
/// The most parameters of a request, of an input, or of a requested output.
pub(crate) const MAX_PARAMETERS: usize = 64;
/// The longest id of a request, which its answer repeats, in bytes.
pub(crate) const MAX_ID: usize = 1024;
/// A decompressed body, and the tensors decoded from it, may each be this many times larger than the body as it was received …
const EXPANSION: usize = 16;
/// … or have this many bytes, if that is more.
const EXPANSION_FLOOR: usize = 16 << 20;

impl Bound {
    /// Checks that `field` has at most `most` of what this bound counts.
    ///
    /// # Errors
    ///
    /// [`RequestError::Bound`] names the field, the count and the bound.
    pub(crate) fn check(self, field: &str, count: usize, most: usize) -> Result<(), RequestError> {
        if count <= most {
            return Ok(());
        }
        Err(RequestError::Bound { bound: self, field: field.to_owned(), count, most })
    }
}

/// The most bytes that a body of `received` bytes may become when it is decompressed, and again when its tensors are decoded.
pub(crate) fn expansion(received: usize) -> usize {
    received.saturating_mul(EXPANSION).max(EXPANSION_FLOOR)
}

/// The error of a body that would become larger than [`expansion`] allows.
pub(crate) fn expands(received: usize) -> RequestError {
    RequestError::Expansion { received, most: expansion(received) }
}

/// Checks the names of a request's tensors: none may be there twice, because each requested output is one copy in the answer.
///
/// # Errors
///
/// [`RequestError::Input`] names the list, the place and the tensor.
pub(crate) fn check_names(inputs: &[Tensor], outputs: &[String]) -> Result<(), RequestError> {
    once("inputs", inputs.iter().map(|tensor| tensor.name.as_str()))?;
    once("outputs", outputs.iter().map(String::as_str))
}

fn once<'a>(list: &str, names: impl Iterator<Item = &'a str>) -> Result<(), RequestError> {
    let mut seen = HashSet::new();
    for (i, name) in names.enumerate() {
        if !seen.insert(name) {
            return Err(RequestError::Input(format!("{list}[{i}] ({name}): is there already; each may be named once")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_bodies_may_become_16_mib_and_large_ones_16_times_their_size() {
        assert_eq!((expansion(0), expansion(1 << 20), expansion(2 << 20)), (16 << 20, 16 << 20, 32 << 20));
        assert_eq!(expansion(usize::MAX), usize::MAX);
    }

    #[test]
    fn a_name_is_there_once() {
        assert!(check_names(&[], &["a".into(), "b".into()]).is_ok());
        let twice = check_names(&[], &["a".into(), "b".into(), "a".into()]).unwrap_err();
        assert_eq!(twice.to_string(), "outputs[2] (a): is there already; each may be named once");
    }
}
