//! The request to run models on a GPU: which device, in which number format, and whether the CPU may run them instead.

use std::path::Path;
use std::sync::Arc;

use super::device::{CudaDevice, DeviceError, Driver};
use super::{GemmPolicy, GpuPrecision};
use crate::placement::{Fallback, FallbackCause};
use lapwing_plan::exec::CpuPrecision;

/// A request to run models on a GPU.
#[derive(Clone, Debug)]
pub struct DeviceRequest {
    /// The device, or why there is none.
    pub device: Result<Arc<CudaDevice>, Fallback>,
    /// Whose kernels compute products of many rows there.
    pub gemm: GemmPolicy,
    /// The number format of products there.
    pub precision: GpuPrecision,
    /// Whether a model that cannot run there, or no longer can, runs on the CPU.
    pub or_cpu: bool,
}

impl DeviceRequest {
    /// Requests the first usable device, with a fallback to the CPU. `directory` is where CUDA's libraries are looked for first.
    /// `None` in a build without the feature `cuda`.
    #[must_use]
    pub fn auto(directory: Option<&Path>, precision: GpuPrecision) -> Option<Self> {
        let found = Driver::find(directory);
        let gemm = found.as_ref().map_or(GemmPolicy::Own, |found| GemmPolicy::Quicker(found.clone()));
        let device = found.map_err(|error| fallback(&error)).and_then(|found| {
            let mut tried = found.devices.iter().map(|info| {
                // the emulated device of the tests is used only if it is named
                if info.is_emulated() {
                    let detail = format!("cuda:{} is {}, which runs kernels on the processor", info.ordinal, info.name);
                    return Err(Fallback { cause: FallbackCause::Emulated, detail });
                }
                CudaDevice::open(&found, info.ordinal).map_err(|error| fallback(&error))
            });
            // if none can be used, reports why the first one cannot
            let first = tried.next().unwrap_or_else(|| Err(fallback(&DeviceError::NoDevice)));
            first.or_else(|why| tried.find_map(Result::ok).ok_or(why))
        });
        Some(Self { device, gemm, precision, or_cpu: true })
    }

    /// Requests this device and no other.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] says why it cannot be used.
    pub fn device(directory: Option<&Path>, ordinal: usize, precision: GpuPrecision) -> Result<Self, DeviceError> {
        let found = Driver::find(directory)?;
        let device = Ok(CudaDevice::open(&found, ordinal)?);
        Ok(Self { device, gemm: GemmPolicy::Quicker(found), precision, or_cpu: false })
    }
}

impl DeviceRequest {
    /// The same request with static ranges for 8-bit products, as the CPU has them.
    #[must_use]
    pub fn calibrated(self, precision: &CpuPrecision) -> Self {
        Self { precision: GpuPrecision::calibrated(precision), ..self }
    }

    /// The same request with Lapwing's own kernels for all products.
    #[must_use]
    pub fn with_own_kernels(self) -> Self {
        Self { gemm: GemmPolicy::Own, ..self }
    }

    /// The device's name if it is the emulated one of the tests.
    #[must_use]
    pub fn emulated_name(&self) -> Option<&str> {
        self.device.as_ref().ok().filter(|device| device.is_emulated()).map(|device| device.info().name.as_str())
    }
}

/// Why a device with this error is not used.
#[must_use]
pub fn fallback(error: &DeviceError) -> Fallback {
    let cause = match error {
        DeviceError::NoDriver => FallbackCause::NoDriver,
        DeviceError::Unloadable { .. }
        | DeviceError::DuplicateLibrary { .. }
        | DeviceError::NoSymbol { .. }
        | DeviceError::NoLt { .. } => FallbackCause::Library,
        DeviceError::OldDriver { .. } => FallbackCause::OldDriver,
        DeviceError::NoDevice | DeviceError::NoSuchDevice { .. } => FallbackCause::NoDevice,
        DeviceError::OldDevice { .. } => FallbackCause::OldDevice,
        error if error.is_out_of_memory() => FallbackCause::Memory,
        _ => FallbackCause::Device,
    };
    Fallback { cause, detail: error.to_string() }
}
