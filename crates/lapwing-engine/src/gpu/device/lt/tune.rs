//! Selects the library's fastest algorithm for a shape by timing each one, because the library's own ranking is often
//! wrong.

use std::time::Duration;

use cudarc::cublaslt::sys::{
    self, cublasLtMatmulAlgoConfigAttributes_t as Config, cublasLtMatmulPreferenceAttributes_t as DeviceRequest,
};

use super::super::buffer::DeviceBuffer;
use super::super::error::{DeviceError, Result};
use super::super::stream::Stream;
use super::descriptors::{Descriptors, Preference};
use super::library::check;
use super::plan::{MatmulPlan, SelectedAlgorithm, enqueue};
use super::shape::{ALIGNMENT, MatmulOperands, MatmulShape};

/// Number of algorithms requested from the library.
const CANDIDATES: usize = 8;
/// Partial sums (split k) are kept in fp32: CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, besides no split at all.
const REDUCTIONS: u32 = 2;

/// Times the algorithms that the library proposes and returns the fastest; `None` if none works.
///
/// # Safety
/// As for [`super::CublasLt::enqueue`].
pub(crate) unsafe fn pick(
    handle: sys::cublasLtHandle_t,
    workspace: &DeviceBuffer,
    stream: &mut Stream,
    product: MatmulShape,
    operands: &MatmulOperands,
) -> Result<Option<MatmulPlan>> {
    let device = stream.device();
    device.bind()?;
    let descriptors = Descriptors::new(&product)?;
    if let Some(bias) = operands.bias {
        // the library's proposals depend on the bias address
        descriptors.operation.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
    }
    let proposed = propose(handle, workspace, &descriptors)?;
    let mut best: Option<(Duration, &sys::cublasLtMatmulHeuristicResult_t)> = None;
    let mut refused = 0;
    for candidate in &proposed {
        // SAFETY: guaranteed by the caller; the library proposed the algorithm for this shape and workspace.
        let work = |to: &Stream| unsafe { enqueue(handle, to, &product, &descriptors, operands, &candidate.algo, workspace) };
        match stream.time(work) {
            Ok(time) if best.is_none_or(|(quickest, _)| time < quickest) => best = Some((time, candidate)),
            Ok(_) => {}
            Err(error @ DeviceError::Lt { .. }) => {
                tracing::debug!(?product, %error, "skipping a cublasLt algorithm");
                refused += 1;
                // wait for what was enqueued before the failure
                stream.wait()?;
            }
            Err(error) => return Err(error),
        }
    }
    let Some((time, picked)) = best else { return Ok(None) };
    let tuning = SelectedAlgorithm {
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
    Ok(Some(MatmulPlan::new(product, descriptors, kernel, tuning)))
}

/// The algorithms that the library proposes, its preferred one first.
fn propose(
    handle: sys::cublasLtHandle_t,
    workspace: &DeviceBuffer,
    descriptors: &Descriptors,
) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>> {
    let wishes = Preference::new()?;
    wishes.set(DeviceRequest::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace.bytes())?;
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
    // SAFETY: descriptors of one shape, alive until the call returns; `found` has room for the requested number.
    let asked = unsafe {
        sys::cublasLtMatmulAlgoGetHeuristic(
            handle,
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
        // no algorithm for the shape
        sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => return Ok(Vec::new()),
        status => check("cublasLtMatmulAlgoGetHeuristic", status)?,
    }
    let count = usize::try_from(count).unwrap_or(0).min(CANDIDATES);
    let usable = |one: &sys::cublasLtMatmulHeuristicResult_t| {
        one.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS && one.workspaceSize <= workspace.bytes()
    };
    Ok(found.into_iter().take(count).filter(usable).collect())
}

/// An attribute of an algorithm, if the library reports it.
fn config<T: Copy + Default>(kernel: &sys::cublasLtMatmulAlgo_t, which: Config) -> Option<T> {
    let (mut value, mut written) = (T::default(), 0);
    // SAFETY: the algorithm comes from the library; `value` has room for the number of bytes that is passed.
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
