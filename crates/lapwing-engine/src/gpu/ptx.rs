//! The compiled kernels: PTX for compute capability 8.0, which the driver compiles for its device.

/// The name and PTX of each module.
pub const MODULES: &[(&str, &str)] = &[
    ("attention", include_str!("../../kernels/ptx/attention.ptx")),
    ("attention_mma", include_str!("../../kernels/ptx/attention_mma.ptx")),
    ("embed", include_str!("../../kernels/ptx/embed.ptx")),
    ("gemm_f32", include_str!("../../kernels/ptx/gemm_f32.ptx")),
    ("gemm_mma", include_str!("../../kernels/ptx/gemm_mma.ptx")),
    ("gemv", include_str!("../../kernels/ptx/gemv.ptx")),
    ("map", include_str!("../../kernels/ptx/map.ptx")),
    ("moves", include_str!("../../kernels/ptx/moves.ptx")),
    ("norm", include_str!("../../kernels/ptx/norm.ptx")),
    ("peaks", include_str!("../../kernels/ptx/peaks.ptx")),
    ("rows", include_str!("../../kernels/ptx/rows.ptx")),
];

/// The PTX of a module; empty if there is no such module.
#[must_use]
pub fn text(module: &str) -> &'static str {
    MODULES.iter().find(|(name, _)| *name == module).map_or("", |(_, text)| text)
}
