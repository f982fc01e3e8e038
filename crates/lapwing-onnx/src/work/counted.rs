//! A node with the shapes of a call.

use crate::shaped::ShapedNode;

/// Operations of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations {
    pub(crate) flops: u64,
    pub(crate) others: u64,
}

/// A node with the shapes of a call.
pub(crate) struct Counted<'a> {
    pub(crate) node: &'a ShapedNode,
    pub(crate) inputs: Vec<Option<Vec<usize>>>,
    pub(crate) outputs: Vec<Option<Vec<usize>>>,
}

/// The number of elements of a shape.
pub(crate) fn product(shape: &[usize]) -> u64 {
    shape.iter().fold(1, |product, length| product.saturating_mul(*length as u64))
}

impl Counted<'_> {
    pub(crate) fn input(&self, at: usize) -> Option<&[usize]> {
        self.inputs.get(at)?.as_deref()
    }

    pub(crate) fn output(&self, at: usize) -> Option<&[usize]> {
        self.outputs.get(at)?.as_deref()
    }

    /// The elements of the first output.
    pub(crate) fn made(&self) -> Option<u64> {
        self.output(0).map(product)
    }

    /// The elements of the first input.
    pub(crate) fn read(&self) -> Option<u64> {
        self.input(0).map(product)
    }

    pub(crate) fn has(&self, at: usize) -> bool {
        self.node.inputs.get(at).is_some_and(Option::is_some)
    }
}
