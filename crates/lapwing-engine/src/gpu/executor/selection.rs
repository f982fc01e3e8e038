//! Selects the kernel of a product of many rows: cublasLt's, if the library is there, or ours. Both are timed when a
//! size is first used, and the faster one is kept as long as its graph.

use std::sync::Arc;
use std::time::Duration;

use super::loaded::{CudaExecutor, GemmPolicy, GpuError};
use super::memory::ThreadMemory;
use crate::gpu::Capacity;
use crate::gpu::args::{BaseAddresses, MatrixRef};
use crate::gpu::device::{self, CublasLt, DeviceError, LaunchShape, MatmulOperands, MatmulPrecision, Stream};
use crate::gpu::header;
use crate::gpu::lower::{Launch, LoweredProgram, Product, Step};
use lapwing_plan::plan::Activation;

/// The kernel selected for a step.
#[derive(Clone, Debug)]
pub(crate) enum SelectedKernel {
    /// Our own kernel.
    Own,
    /// A cublasLt kernel.
    Library(Arc<device::MatmulPlan>, MatmulOperands),
}

/// Selects a kernel for each step of a program; steps that are not products use our own.
pub(crate) fn select_kernels(
    executor: &CudaExecutor,
    memory: &mut ThreadMemory,
    program: &LoweredProgram,
    capacity: Capacity,
    bases: &BaseAddresses,
) -> Result<Vec<SelectedKernel>, GpuError> {
    let mut selected = vec![SelectedKernel::Own; program.steps.len()];
    let Some(lt) = &memory.lt else { return Ok(selected) };
    if program.has_header {
        // our timed kernels read the number of rows from the header: batches fill five sixths of their capacity on
        // average, while the library always computes the full capacity
        let tokens = (capacity.tokens * 5).div_ceil(6).max(capacity.batch);
        let offsets: Vec<usize> = (0..=capacity.batch).map(|at| at * tokens / capacity.batch).collect();
        let mut words = Vec::new();
        header::write(capacity, &offsets, &mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.inputs.upload(&memory.stream, 0, &bytes)?;
    }
    for (step, selected) in program.steps.iter().zip(&mut selected) {
        let Step::Product(product) = step else { continue };
        let (shape, operands) = as_matmul(executor, product, bases);
        let Some(plan) = library_kernel(lt, &mut memory.stream, shape, &operands)? else { continue };
        if matches!(executor.gemm, GemmPolicy::Library(_)) {
            *selected = SelectedKernel::Library(plan, operands);
            continue;
        }
        // layers have the same shapes: each shape is timed once
        let mut timed = |launch: &Launch| -> Result<Duration, DeviceError> {
            let key = (shape, product.activation, launch.kernel.name);
            let known = executor.own_times.lock().get(&key).copied();
            known.map_or_else(|| time(executor, &mut memory.stream, launch, bases), Ok).inspect(|time| {
                executor.own_times.lock().insert(key, *time);
            })
        };
        let (own, then) = (timed(&product.own)?, product.then.as_deref().map_or(Ok(Duration::ZERO), timed)?);
        let cublaslt = plan.tuning().time;
        tracing::debug!(rows = product.rows, k = product.k, n = product.n, ?own, ?cublaslt, ?then, "times of a product");
        if cublaslt + then < own {
            *selected = SelectedKernel::Library(plan, operands);
        }
    }
    Ok(selected)
}

/// The product in the form of a cublasLt call.
fn as_matmul(executor: &CudaExecutor, product: &Product, bases: &BaseAddresses) -> (device::MatmulShape, MatmulOperands) {
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let at = |mat: MatrixRef| bases.at(mat.at);
    let shape = device::MatmulShape {
        precision: match (executor.precision.is_half(), executor.precision.is_tf32()) {
            (true, _) => MatmulPrecision::Fp16,
            (false, true) => MatmulPrecision::Tf32,
            (false, false) => MatmulPrecision::Fp32,
        },
        rows: word(product.rows),
        n: word(product.n),
        k: word(product.k),
        x_stride: word(product.x.stride),
        w_stride: word(product.w.stride),
        y_stride: word(product.y.stride),
        residual_stride: product.residual.map(|residual| word(residual.stride)),
        bias: product.bias.is_some(),
        relu: product.activation == Activation::Relu,
    };
    let operands = MatmulOperands {
        x: at(product.x),
        w: at(product.w),
        bias: product.bias.map(|bias| bases.at(bias)),
        residual: product.residual.map(at),
        y: at(product.y),
    };
    (shape, operands)
}

/// The library's fastest kernel for a product; `None` if it has none, or rejects the product.
#[allow(unsafe_code, reason = "a product passes addresses to the device")]
fn library_kernel(
    lt: &CublasLt,
    stream: &mut Stream,
    shape: device::MatmulShape,
    operands: &MatmulOperands,
) -> Result<Option<Arc<device::MatmulPlan>>, DeviceError> {
    // SAFETY: the operands lie in the weights and in this thread's memory, which hold matrices of this shape and
    // outlive the stream's work; the library was created for this stream
    match unsafe { lt.plan(stream, shape, operands) } {
        Err(DeviceError::Lt { call, text }) => {
            tracing::debug!(?shape, call, text, "cublasLt rejected a product; using our own kernel");
            Ok(None)
        }
        other => other,
    }
}

/// The median time of our own kernel.
#[allow(unsafe_code, reason = "a launch passes addresses to the device")]
fn time(executor: &CudaExecutor, stream: &mut Stream, launch: &Launch, bases: &BaseAddresses) -> Result<Duration, DeviceError> {
    let function = executor.function(launch.kernel)?;
    let args = launch.args.bytes(bases, false);
    let shape = LaunchShape { grid: launch.grid, threads: launch.kernel.threads, shared_bytes: launch.shared };
    // SAFETY: as in a capture: the arguments are the kernel's parameter struct, and refer to the executor's and this
    // thread's memory
    stream.time(|stream| unsafe { stream.launch(&function, shape, &args) })
}
