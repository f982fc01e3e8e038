//! Which of the library's kernels is the quickest for a shape: by timing each, since what the library thinks best often is not.

use std::time::Duration;

use cudarc::cublaslt::sys::{
    self, cublasLtMatmulAlgoConfigAttributes_t as Config, cublasLtMatmulPreferenceAttributes_t as DeviceRequest,
};

use super::super::error::{DeviceError, Result};
use super::super::stream::Stream;
use super::descriptors::{Descriptors, Preference};
use super::plan::{ALIGNMENT, Operands, Plan, Product, enqueue};
use super::{CublasLt, check};

/// How many kernels the library is asked for.
const CANDIDATES: usize = 8;
/// Sums of parts (split k) are kept in 32 bits: CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, besides no parts at all.
const REDUCTIONS: u32 = 2;

/// What was picked for a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// The library's number of the kernel.
    pub algorithm: i32,
    /// The library's number of its tile.
    pub tile: u32,
    /// The library's number of its stages.
    pub stages: u32,
    /// Into how many parts k is split.
    pub split_k: u32,
    /// Workspace that it needs, in bytes.
    pub workspace_bytes: usize,
    /// Device time of one product, the median.
    pub time: Duration,
    /// How many kernels the library proposed.
    pub proposed: usize,
    /// How many of these it then refused.
    pub refused: usize,
}

/// Times what the library proposes, and keeps the quickest; none where there is no kernel that works.
///
/// # Safety
/// As for [`CublasLt::give`].
pub(super) unsafe fn pick(lt: &CublasLt, stream: &mut Stream, product: Product, operands: &Operands) -> Result<Option<Plan>> {
    let device = stream.device();
    device.bind()?;
    let descriptors = Descriptors::new(&product)?;
    if let Some(bias) = operands.bias {
        // its place is part of what the library looks at
        descriptors.operation.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
    }
    let proposed = propose(lt, &descriptors)?;
    let mut best: Option<(Duration, &sys::cublasLtMatmulHeuristicResult_t)> = None;
    let mut refused = 0;
    for candidate in &proposed {
        // SAFETY: the caller's promise; the library proposed it for this shape and workspace.
        let give = |to: &Stream| unsafe {
            enqueue(lt.library.handle, to, &product, &descriptors, operands, &candidate.algo, &lt.workspace)
        };
        match stream.time(give) {
            Ok(time) if best.is_none_or(|(quickest, _)| time < quickest) => best = Some((time, candidate)),
            Ok(_) => {}
            Err(error @ DeviceError::Lt { .. }) => {
                tracing::debug!(?product, %error, "a kernel of cublasLt is left out");
                refused += 1;
                // what was given before it failed
                stream.wait()?;
            }
            Err(error) => return Err(error),
        }
    }
    let Some((time, picked)) = best else { return Ok(None) };
    let tuning = Tuning {
        algorithm: config(&picked.algo, Config::CUBLASLT_ALGO_CONFIG_ID).unwrap_or(-1),
        tile: config(&picked.algo, Config::CUBLASLT_ALGO_CONFIG_TILE_ID).unwrap_or(0),
        stages: config(&picked.algo, Config::CUBLASLT_ALGO_CONFIG_STAGES_ID).unwrap_or(0),
        split_k: config(&picked.algo, Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM).unwrap_or(0),
        workspace_bytes: picked.workspaceSize,
        time,
        proposed: proposed.len(),
        refused,
    };
    let kernel = picked.algo;
    Ok(Some(Plan::new(product, descriptors, kernel, tuning)))
}

/// What the library proposes, its favourite first.
fn propose(lt: &CublasLt, descriptors: &Descriptors) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>> {
    let wishes = Preference::new()?;
    wishes.set(DeviceRequest::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, lt.workspace.bytes())?;
    wishes.set(DeviceRequest::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, REDUCTIONS)?;
    for which in [
        DeviceRequest::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        DeviceRequest::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        DeviceRequest::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        DeviceRequest::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ] {
        wishes.set(which, ALIGNMENT as u32)?;
    }
    let mut found = [sys::cublasLtMatmulHeuristicResult_t {
        algo: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        workspaceSize: 0,
        state: sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED,
        wavesCount: 0.0,
        reserved: [0; 4],
    }; CANDIDATES];
    let mut count = 0;
    // SAFETY: descriptors of one shape, alive until this returns; `found` has room for as many as are asked for.
    let asked = unsafe {
        sys::cublasLtMatmulAlgoGetHeuristic(
            lt.library.handle,
            descriptors.operation.0,
            descriptors.w.0,
            descriptors.x.0,
            descriptors.residual.0,
            descriptors.y.0,
            wishes.0,
            CANDIDATES as i32,
            found.as_mut_ptr(),
            &mut count,
        )
    };
    match asked {
        // no kernel for the shape
        sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => return Ok(Vec::new()),
        status => check("cublasLtMatmulAlgoGetHeuristic", status)?,
    }
    let count = usize::try_from(count).unwrap_or(0).min(CANDIDATES);
    let usable = |one: &sys::cublasLtMatmulHeuristicResult_t| {
        one.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS && one.workspaceSize <= lt.workspace.bytes()
    };
    Ok(found.into_iter().take(count).filter(usable).collect())
}

/// A number of the kernel's, where the library tells it.
fn config<T: Copy + Default>(kernel: &sys::cublasLtMatmulAlgo_t, which: Config) -> Option<T> {
    let (mut value, mut written) = (T::default(), 0);
    // SAFETY: the kernel is one that the library gave; `value` has room for as many bytes as are named.
    let status = unsafe {
        sys::cublasLtMatmulAlgoConfigGetAttribute(
            kernel,
            which,
            std::ptr::from_mut(&mut value).cast(),
            size_of::<T>(),
            &mut written,
        )
    };
    (status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS).then_some(value)
}
