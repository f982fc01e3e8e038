//! Selects the kernel of a product of many rows: cublasLt's, if the library is there, or ours. Both are timed when a
//! size is first used, and the faster one is kept as long as its graph.

use std::sync::Arc;
use std::time::Duration;

use super::state::Held;
use super::{Executor, GpuError};
use crate::gpu::Capacity;
use crate::gpu::args::{Bases, Mat};
use crate::gpu::device::{self, CublasLt, DeviceError, Found, Operands, ProductPrecision, Shape, Stream};
use crate::gpu::header;
use crate::gpu::lower::{Launch, Product, Program, Step};
use crate::plan::Activation;

/// Which kernels compute products of many rows.
#[derive(Clone, Debug, Default)]
pub enum Gemm {
    /// Our own kernels.
    #[default]
    Own,
    /// The faster one of ours and cublasLt's, if the library is found.
    Quicker(Found),
    /// cublasLt wherever it has a kernel; for comparisons.
    Library(Found),
}

impl Gemm {
    /// Where to look for the library.
    pub(super) const fn libraries(&self) -> Option<&Found> {
        match self {
            Self::Own => None,
            Self::Quicker(found) | Self::Library(found) => Some(found),
        }
    }

    /// The name used in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Quicker(_) => "quicker",
            Self::Library(_) => "cublaslt",
        }
    }
}

/// The kernel selected for a step.
#[derive(Clone, Debug)]
pub(super) enum Chosen {
    /// Our own kernel.
    Own,
    /// A cublasLt kernel.
    Library(Arc<device::Plan>, Operands),
}

/// Selects a kernel for each step of a program; steps that are not products use our own.
pub(super) fn choose(
    executor: &Executor,
    held: &mut Held,
    program: &Program,
    capacity: Capacity,
    bases: &Bases,
) -> Result<Vec<Chosen>, GpuError> {
    let mut chosen = vec![Chosen::Own; program.steps.len()];
    let Some(lt) = &held.lt else { return Ok(chosen) };
    if program.has_header {
        // our timed kernels read the number of rows from the header: batches fill five sixths of their capacity on
        // average, while the library always computes the full capacity
        let tokens = (capacity.tokens * 5).div_ceil(6).max(capacity.batch);
        let offsets: Vec<usize> = (0..=capacity.batch).map(|at| at * tokens / capacity.batch).collect();
        let mut words = Vec::new();
        header::write(capacity, &offsets, &mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        held.inputs.upload(&held.stream, 0, &bytes)?;
    }
    for (step, chosen) in program.steps.iter().zip(&mut chosen) {
        let Step::Product(product) = step else { continue };
        let (shape, operands) = asked(executor, product, bases);
        let Some(plan) = by_library(lt, &mut held.stream, shape, &operands)? else { continue };
        if matches!(executor.gemm, Gemm::Library(_)) {
            *chosen = Chosen::Library(plan, operands);
            continue;
        }
        // layers have the same shapes: each shape is timed once
        let known = executor.own_times.lock().get(&(shape, product.own.kernel.name)).copied();
        let own = match known {
            Some(own) => own,
            None => {
                let own = time(executor, &mut held.stream, &product.own, bases)?;
                let cublaslt = plan.tuning().time;
                tracing::debug!(rows = product.rows, k = product.k, n = product.n, ?own, ?cublaslt, "timed a product");
                executor.own_times.lock().insert((shape, product.own.kernel.name), own);
                own
            }
        };
        if plan.tuning().time < own {
            *chosen = Chosen::Library(plan, operands);
        }
    }
    Ok(chosen)
}

/// The product in the form of a cublasLt call.
fn asked(executor: &Executor, product: &Product, bases: &Bases) -> (device::Product, Operands) {
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let at = |mat: Mat| bases.at(mat.at);
    let shape = device::Product {
        precision: match (executor.precision.is_half(), executor.precision.is_tf32()) {
            (true, _) => ProductPrecision::Fp16,
            (false, true) => ProductPrecision::Tf32,
            (false, false) => ProductPrecision::Fp32,
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
    let operands = Operands {
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
fn by_library(
    lt: &CublasLt,
    stream: &mut Stream,
    shape: device::Product,
    operands: &Operands,
) -> Result<Option<Arc<device::Plan>>, DeviceError> {
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
fn time(executor: &Executor, stream: &mut Stream, launch: &Launch, bases: &Bases) -> Result<Duration, DeviceError> {
    let function = executor.function(launch.kernel)?;
    let args = launch.args.bytes(bases, false);
    let shape = Shape { grid: launch.grid, threads: launch.kernel.threads, shared_bytes: launch.shared };
    // SAFETY: as in a capture: the arguments are the kernel's parameter struct, and refer to the executor's and this
    // thread's memory
    stream.time(|stream| unsafe { stream.launch(&function, shape, &args) })
}
