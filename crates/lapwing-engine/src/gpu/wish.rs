//! What is asked of a GPU for models: which device, in what numbers, and whether the processor may do it instead.

use std::path::Path;
use std::sync::Arc;

use super::device::{Device, DeviceError, Driver};
use super::{GemmPolicy, Precision};
use crate::standing::{Fallback, Reason};

/// What is asked of a GPU.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The device, or why there is none.
    pub device: Result<Arc<Device>, Fallback>,
    /// Who does products of many rows there.
    pub gemm: GemmPolicy,
    /// In what numbers products are done there.
    pub precision: Precision,
    /// Whether a model that cannot run there, or not any more, runs on the processor.
    pub or_cpu: bool,
}

impl Wish {
    /// The first device, if there is one that can be used; else the processor. `directory` is where CUDA's libraries are looked
    /// for first.
    #[must_use]
    pub fn auto(directory: Option<&Path>, precision: Precision) -> Self {
        let found = Driver::find(directory);
        let gemm = found.as_ref().map_or(GemmPolicy::Own, |found| GemmPolicy::Quicker(found.clone()));
        let device = found.map_err(|error| fallback(&error)).and_then(|found| {
            let mut tried = found.devices.iter().map(|info| {
                // a device of tests is chosen by those who name it
                if info.is_emulated() {
                    let told = format!("cuda:{} is {}, which runs kernels on the processor", info.ordinal, info.name);
                    return Err(Fallback { reason: Reason::Emulated, told });
                }
                Device::open(&found, info.ordinal).map_err(|error| fallback(&error))
            });
            // why not the first one, where none can be used
            let first = tried.next().unwrap_or_else(|| Err(fallback(&DeviceError::NoDevice)));
            first.or_else(|why| tried.find_map(Result::ok).ok_or(why))
        });
        Self { device, gemm, precision, or_cpu: true }
    }

    /// This device and no other.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] with what stands in the way.
    pub fn device(directory: Option<&Path>, ordinal: usize, precision: Precision) -> Result<Self, DeviceError> {
        let found = Driver::find(directory)?;
        let device = Ok(Device::open(&found, ordinal)?);
        Ok(Self { device, gemm: GemmPolicy::Quicker(found), precision, or_cpu: false })
    }
}

/// An error of a device as a reason not to use it.
#[must_use]
pub fn fallback(error: &DeviceError) -> Fallback {
    let reason = match error {
        DeviceError::NoDriver => Reason::NoDriver,
        DeviceError::Unloadable { .. }
        | DeviceError::DuplicateLibrary { .. }
        | DeviceError::NoSymbol { .. }
        | DeviceError::NoLt { .. } => Reason::Library,
        DeviceError::OldDriver { .. } => Reason::OldDriver,
        DeviceError::NoDevice | DeviceError::NoSuchDevice { .. } => Reason::NoDevice,
        DeviceError::OldDevice { .. } => Reason::OldDevice,
        error if error.is_out_of_memory() => Reason::Memory,
        _ => Reason::Device,
    };
    Fallback { reason, told: error.to_string() }
}
