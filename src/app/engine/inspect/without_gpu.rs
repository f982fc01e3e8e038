//! Replaces `launches` in a build without the feature `cuda`: it has no kernels for a GPU.

use std::io::Write;

use serde_json::{Map, Value};

use super::super::cli::InspectArgs;
use super::super::error::ToolError;
use super::super::shapes::Shape;
use lapwing_plan::plan::Plan;

pub(crate) fn fields(_: &Plan, _: Shape, _: &InspectArgs) -> Result<Map<String, Value>, ToolError> {
    Err(fault())
}

pub(crate) fn table(_: &Plan, _: Shape, _: &InspectArgs, _: &mut dyn Write) -> Result<(), ToolError> {
    Err(fault())
}

fn fault() -> ToolError {
    ToolError::argument("device", "this build has no kernels for a GPU (feature `cuda`)")
}
