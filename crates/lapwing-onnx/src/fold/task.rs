//! A node whose inputs are constants.

use crate::shaped::Constant;
use crate::tensor::Datatype;
use crate::view::View;

/// A node to evaluate.
pub(crate) struct Task<'a> {
    pub(crate) view: &'a View<'a>,
    pub(crate) inputs: &'a [Option<&'a Constant>],
    pub(crate) shapes: &'a [Option<Vec<usize>>],
    /// The shape of the first output.
    pub(crate) shape: &'a [usize],
    /// The type of the first output.
    pub(crate) datatype: Option<Datatype>,
}

impl<'a> Task<'a> {
    pub(crate) fn operator(&self) -> &'a str {
        &self.view.node.operator
    }

    pub(crate) fn input(&self, at: usize) -> Option<&'a Constant> {
        self.inputs.get(at).copied().flatten()
    }
}
