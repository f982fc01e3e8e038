//! Finds the types, shapes and known values of a graph's tensors, without running it.
//!
//! Nodes are visited in running order. A node that reads constants only is evaluated and is none any more; of the others the shapes are
//! expressions over the names of the inputs' open axes. What a rule does not know stays unknown, or is what the file declares. A graph
//! that no call can run is an error that names the node.

mod branches;
mod builder;
mod concrete;
mod datatypes;
mod elementwise;
mod layout;
mod lengths;
mod node;
mod products;
mod recurrent;
mod rules;
mod scope;
mod select;
mod tabular;
#[cfg(test)]
mod tests;
mod values;
mod windows;

pub(crate) use self::concrete::Concrete;
pub use self::lengths::evaluate;
pub use self::node::computed;
