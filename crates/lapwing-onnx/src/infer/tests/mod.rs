//! Shapes, values and messages of small graphs.

mod build;
mod files;
mod folded;
mod hostile;
mod messages;
mod shapes;
mod work;
