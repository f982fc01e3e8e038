//! What a build without kernels says to commands that need them.

use std::io::Write;

use super::error::ToolError;

/// The command cannot do what it is asked.
pub(super) fn run<A>(_: &A, _: &mut (dyn Write + Send)) -> Result<(), ToolError> {
    Err(ToolError::Told("this build has no kernels (feature `engine`)".to_owned()))
}
