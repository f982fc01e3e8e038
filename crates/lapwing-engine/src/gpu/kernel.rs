//! The table of kernels: names, modules, and launch parameters. Sources are in kernels/, their compiled PTX in
//! kernels/ptx/. The same parameters are documented in the sources, and a test compares them.

use super::layout::Kind;

/// A kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in the module.
    pub name: &'static str,
    /// Its module, which is the name of its source file.
    pub module: &'static str,
    /// Threads per block.
    pub threads: u32,
    /// Shared memory per block in bytes, besides what a launch adds.
    pub shared: u32,
}

const fn kernel(module: &'static str, name: &'static str, threads: u32, shared: u32) -> Kernel {
    Kernel { name, module, threads, shared }
}

/// A tile of a tiled product.
#[derive(Debug, PartialEq, Eq)]
pub struct Tile {
    /// Its kernel.
    pub kernel: Kernel,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
    /// Its relative speed when all multiprocessors are busy, in percent of the largest tile.
    pub worth: usize,
}

const fn tile(
    module: &'static str,
    name: &'static str,
    rows: usize,
    columns: usize,
    threads: u32,
    shared: u32,
    worth: usize,
) -> Tile {
    Tile { kernel: kernel(module, name, threads, shared), rows, columns, worth }
}

/// The widest supported head, in columns.
pub const WIDEST_HEAD: usize = 256;
/// The widest row that one warp normalises; wider rows get a block each.
pub const WIDEST_OF_A_WARP: usize = 1024;

/// `attention.cu`: heads of any size.
pub static ATTENTION: Kernel = kernel("attention", "attention_f32", 256, 35_840);
/// `norm.cu`
pub static LAYER_NORM: Kernel = kernel("norm", "layer_norm", 128, 0);
/// `norm.cu`
pub static RMS_NORM: Kernel = kernel("norm", "rms_norm", 128, 0);
/// `norm.cu`: a block for each row.
pub static LAYER_NORM_WIDE: Kernel = kernel("norm", "layer_norm_wide", 256, 4 * 8);
/// `norm.cu`: a block for each row.
pub static RMS_NORM_WIDE: Kernel = kernel("norm", "rms_norm_wide", 256, 4 * 8);
/// `rows.cu`
pub static SOFTMAX: Kernel = kernel("rows", "softmax_rows", 128, 0);
/// `rows.cu`
pub static REDUCE: Kernel = kernel("rows", "reduce_rows", 128, 0);
/// `rows.cu`
pub static POOL: Kernel = kernel("rows", "pool_tokens", 512, 4 * 16 * 128);
/// `rows.cu`
pub static MEAN_POOL: Kernel = kernel("rows", "mean_pool", 512, 4 * (16 * 128 + 512 + 16));
/// `rows.cu`
pub static CUM_SUM: Kernel = kernel("rows", "cum_sum", 512, 4 * 512);
/// `embed.cu`
pub static EMBED: Kernel = kernel("embed", "embed", 128, 0);
/// `map.cu`: programs without row folds.
pub static MAP_FLAT: Kernel = kernel("map", "map_flat", 256, 0);
/// `map.cu`: a block for each row.
pub static MAP_ROWS: Kernel = kernel("map", "map_rows", 256, 0);
/// `moves.cu`
pub static COPY: Kernel = kernel("moves", "copy_columns", 256, 0);
/// `moves.cu`
pub static ROTATE: Kernel = kernel("moves", "rotate_heads", 256, 0);
/// `moves.cu`
pub static QUANTIZE: Kernel = kernel("moves", "quantize_rows", 128, 0);

/// Additional shared memory in bytes of the attention kernel for values of `head_out` columns per head, and for biases by distance.
#[must_use]
pub fn attention_shared(kernel: &Kernel, head_out: usize, has_distances: bool) -> u32 {
    let columns = head_out.next_multiple_of(32);
    if kernel.name == ATTENTION.name {
        return u32::try_from(256 * columns).unwrap_or(u32::MAX);
    }
    if has_distances { 1536 } else { 0 }
}

static ATTENTION_F16: [(usize, Kernel); 3] = [
    (32, kernel("attention_mma", "attention_f16_32", 128, 25_344)),
    (64, kernel("attention_mma", "attention_f16_64", 128, 49_920)),
    (128, kernel("attention_mma", "attention_f16_128", 128, 66_048)),
];

/// `gemv.cu`: products of few rows, by the weight's element type and the most rows.
static GEMV: [(Kind, [(usize, Kernel); 4]); 3] = [
    (
        Kind::F32,
        [
            (1, kernel("gemv", "gemv_f32_1", 256, 512)),
            (2, kernel("gemv", "gemv_f32_2", 256, 512)),
            (4, kernel("gemv", "gemv_f32_4", 256, 512)),
            (8, kernel("gemv", "gemv_f32_8", 256, 512)),
        ],
    ),
    (
        Kind::F16,
        [
            (1, kernel("gemv", "gemv_f16_1", 256, 512)),
            (2, kernel("gemv", "gemv_f16_2", 256, 512)),
            (4, kernel("gemv", "gemv_f16_4", 256, 512)),
            (8, kernel("gemv", "gemv_f16_8", 256, 512)),
        ],
    ),
    (
        Kind::S8,
        [
            (1, kernel("gemv", "gemv_s8_1", 256, 512)),
            (2, kernel("gemv", "gemv_s8_2", 256, 512)),
            (4, kernel("gemv", "gemv_s8_4", 256, 512)),
            (8, kernel("gemv", "gemv_s8_8", 256, 512)),
        ],
    ),
];

/// `gemm_f32.cu`: full single precision.
static GEMM_F32: [Tile; 3] = [
    tile("gemm_f32", "gemm_f32_128x128", 128, 128, 256, 49_152, 100),
    tile("gemm_f32", "gemm_f32_64x64", 64, 64, 128, 32_768, 85),
    tile("gemm_f32", "gemm_f32_32x64", 32, 64, 128, 24_576, 65),
];

/// `gemm_mma.cu`: tensor cores.
static GEMM_TF32: [Tile; 4] = mma(["gemm_tf32_128x128", "gemm_tf32_128x64", "gemm_tf32_64x64", "gemm_tf32_32x64"]);
static GEMM_F16: [Tile; 4] = mma(["gemm_f16_128x128", "gemm_f16_128x64", "gemm_f16_64x64", "gemm_f16_32x64"]);
static GEMM_S8: [Tile; 4] = mma(["gemm_s8_128x128", "gemm_s8_128x64", "gemm_s8_64x64", "gemm_s8_32x64"]);

const fn mma(names: [&'static str; 4]) -> [Tile; 4] {
    [
        tile("gemm_mma", names[0], 128, 128, 128, 65_536, 100),
        tile("gemm_mma", names[1], 128, 64, 128, 49_152, 85),
        tile("gemm_mma", names[2], 64, 64, 128, 49_152, 70),
        tile("gemm_mma", names[3], 32, 64, 128, 49_152, 50),
    ]
}

/// The kernel of a product of few rows; at most 8.
#[must_use]
pub fn gemv(kind: Kind, rows: usize) -> &'static Kernel {
    let (_, kernels) = GEMV.iter().find(|(other, _)| *other == kind).unwrap_or(&GEMV[0]);
    kernels.iter().find(|(most, _)| rows <= *most).map_or(&kernels[3].1, |(_, kernel)| kernel)
}

/// Columns per block of a gemv kernel with `split` warps per column.
#[must_use]
pub const fn gemv_columns(rows: usize, split: usize) -> usize {
    8 / split * if rows <= 2 { 1 } else { 2 }
}

/// Columns per block of the kernels that fold tokens.
#[must_use]
pub fn pool_columns(kernel: &Kernel) -> usize {
    if kernel.name == CUM_SUM.name { 32 } else { 128 }
}

/// The tiles of a product, largest first.
#[must_use]
pub const fn tiles(kind: Kind, is_tf32: bool) -> &'static [Tile] {
    match kind {
        Kind::F16 => &GEMM_F16,
        Kind::S8 => &GEMM_S8,
        _ if is_tf32 => &GEMM_TF32,
        _ => &GEMM_F32,
    }
}

/// The fp16 attention kernel for heads of `head` columns; `None` above 128. That of the smallest heads has no biases by distance.
#[must_use]
pub fn attention_f16(head: usize, has_distances: bool) -> Option<&'static Kernel> {
    let kernels = &ATTENTION_F16[usize::from(has_distances)..];
    kernels.iter().find(|(most, _)| head <= *most).map(|(_, kernel)| kernel)
}

/// All kernels that programs use.
pub fn all() -> impl Iterator<Item = &'static Kernel> {
    let gemv = GEMV.iter().flat_map(|(_, kernels)| kernels).map(|(_, kernel)| kernel);
    let tiles = [&GEMM_F32[..], &GEMM_TF32, &GEMM_F16, &GEMM_S8].into_iter().flatten().map(|tile| &tile.kernel);
    let attention = ATTENTION_F16.iter().map(|(_, kernel)| kernel).chain([&ATTENTION]);
    let rest = [
        &LAYER_NORM,
        &LAYER_NORM_WIDE,
        &RMS_NORM,
        &RMS_NORM_WIDE,
        &SOFTMAX,
        &REDUCE,
        &POOL,
        &MEAN_POOL,
        &CUM_SUM,
        &EMBED,
        &MAP_FLAT,
        &MAP_ROWS,
        &COPY,
        &ROTATE,
        &QUANTIZE,
    ];
    gemv.chain(tiles).chain(attention).chain(rest)
}
