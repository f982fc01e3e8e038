//! Convolutions by the engine's kernels: images keep their channels side by side from one convolution to the next, bias, activation and
//! residual are computed where a convolution leaves its pixels, and weights are packed at load. `divide` cuts a file into what rten
//! computes and what is computed here, in turns; `run` computes the latter.

pub(crate) mod constants;
pub(crate) mod divide;
pub(crate) mod elementwise;
pub(crate) mod image;
pub(crate) mod role;
pub(crate) mod run;
pub(crate) mod steps;
#[cfg(test)]
mod tests;
