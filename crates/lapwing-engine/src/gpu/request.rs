//! The request to run models on a GPU: which device, in which number format, and whether the CPU may run them instead.

use std::path::Path;
use std::sync::Arc;

use super::device::{Device, DeviceError, Found};
use super::{Gemm, GpuPrecision};
use crate::exec::{CpuPrecision, Fallback, FallbackCause};

/// What is asked of a GPU.
#[derive(Clone, Debug)]
pub struct DeviceRequest {
    /// The device, or why there is none.
    pub device: Result<Arc<Device>, Fallback>,
    /// Who does products of many rows there.
    pub gemm: Gemm,
    /// In what numbers products are done there.
    pub precision: GpuPrecision,
    /// Whether a model that cannot run there, or not any more, runs on the processor.
    pub or_cpu: bool,
}

impl DeviceRequest {
    /// The first device, if there is one that can be used; else the processor. `directory` is where CUDA's libraries are looked
    /// for first.
    #[must_use]
    pub fn auto(directory: Option<&Path>, precision: GpuPrecision) -> Option<Self> {
        let found = Found::find(directory);
        let gemm = found.as_ref().map_or(Gemm::Own, |found| Gemm::Quicker(found.clone()));
        let device = found.map_err(|error| fallback(&error)).and_then(|found| {
            let mut tried = found.devices.iter().map(|info| {
                // a device of tests is chosen by those who name it
                if info.is_emulated() {
                    let detail = format!("cuda:{} is {}, which runs kernels on the processor", info.ordinal, info.name);
                    return Err(Fallback { cause: FallbackCause::Emulated, detail });
                }
                Device::open(&found, info.ordinal).map_err(|error| fallback(&error))
            });
            // why not the first one, where none can be used
            let first = tried.next().unwrap_or_else(|| Err(fallback(&DeviceError::NoDevice)));
            first.or_else(|why| tried.find_map(Result::ok).ok_or(why))
        });
        Some(Self { device, gemm, precision, or_cpu: true })
    }

    /// This device and no other.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] with what stands in the way.
    pub fn device(directory: Option<&Path>, ordinal: usize, precision: GpuPrecision) -> Result<Self, DeviceError> {
        let found = Found::find(directory)?;
        let device = Ok(Device::open(&found, ordinal)?);
        Ok(Self { device, gemm: Gemm::Quicker(found), precision, or_cpu: false })
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
        Self { gemm: Gemm::Own, ..self }
    }

    /// The device's name where it is the tests' emulated one.
    #[must_use]
    pub fn emulated_name(&self) -> Option<&str> {
        self.device.as_ref().ok().filter(|device| device.is_emulated()).map(|device| device.info().name.as_str())
    }
}

/// An error of a device as a reason not to use it.
#[must_use]
pub fn fallback(error: &DeviceError) -> Fallback {
    let cause = match error {
        DeviceError::NoDriver => FallbackCause::NoDriver,
        DeviceError::Unloadable { .. } | DeviceError::Twice { .. } | DeviceError::NoSymbol { .. } | DeviceError::NoLt { .. } => {
            FallbackCause::Library
        }
        DeviceError::OldDriver { .. } => FallbackCause::OldDriver,
        DeviceError::NoDevice | DeviceError::NoSuchDevice { .. } => FallbackCause::NoDevice,
        DeviceError::OldDevice { .. } => FallbackCause::OldDevice,
        error if error.is_out_of_memory() => FallbackCause::Memory,
        _ => FallbackCause::Device,
    };
    Fallback { cause, detail: error.to_string() }
}
