//! A device's properties, read once before a context is created on it.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute};

use super::error::{DeviceError, Result, check};

/// The name of the test suite's device, which runs kernels on the host: never selected automatically, never
/// benchmarked.
pub const EMULATED: &str = "lapwing-emulated";

/// The minimum compute capability: kernels are shipped as PTX for 8.0.
pub const LEAST_CAPABILITY: (u32, u32) = (8, 0);

/// A device, as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its ordinal, from 0.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability, major and minor.
    pub capability: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Size of the second-level cache, in bytes.
    pub l2_bytes: u64,
    /// Size of its memory, in bytes.
    pub memory_bytes: u64,
    /// The most shared memory that one block may use, in bytes.
    pub shared_bytes: u32,
}

impl DeviceInfo {
    /// Reads the properties of a device. Called only after the driver was initialised and its functions were looked up.
    pub(crate) fn read(ordinal: usize) -> Result<Self> {
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let mut device: CUdevice = 0;
        // SAFETY: the driver is initialised; `device` is valid for writing a handle.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, number) })?;
        let mut bytes = 0_usize;
        // SAFETY: `device` is a driver handle; `bytes` is valid for writing a size.
        check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut bytes, device) })?;
        Ok(Self {
            ordinal,
            name: name(device)?,
            capability: (
                attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2_bytes: attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            memory_bytes: bytes as u64,
            shared_bytes: attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        })
    }

    /// Whether this is the test suite's emulated device.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.name == EMULATED
    }

    /// Checks that the kernels run on it.
    ///
    /// # Errors
    /// Its compute capability is below [`LEAST_CAPABILITY`].
    pub fn supported(&self) -> Result<()> {
        if self.capability < LEAST_CAPABILITY {
            return Err(DeviceError::OldDevice { found: self.capability, needed: LEAST_CAPABILITY });
        }
        Ok(())
    }
}

fn name(device: CUdevice) -> Result<String> {
    let mut text = [0_u8; 256];
    // SAFETY: `text` has room for the 256 bytes that are passed; a C character is a byte.
    check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(text.as_mut_ptr().cast(), 256, device) })?;
    Ok(CStr::from_bytes_until_nul(&text).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
}

/// An attribute that is never negative.
fn attribute(device: CUdevice, which: CUdevice_attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `device` is a driver handle; `value` is valid for writing an integer.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}
