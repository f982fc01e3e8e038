//! Looks for a usable driver and its devices. Everything is looked up before it is called: on a machine without CUDA
//! this returns an error and never panics.

use std::path::{Path, PathBuf};

use cudarc::driver::sys::{self, CUresult};

use super::error::{DeviceError, Result, check};
use super::info::DeviceInfo;
use super::version::Version;
use super::{library, symbols};

/// The minimum driver: the version that the shipped PTX (ISA 8.0) needs.
pub const LEAST_DRIVER: Version = Version(12, 0);

/// A usable driver. A value of this type proves that every function that this layer calls exists; it is the only way to
/// a [`super::CudaDevice`].
#[derive(Debug, Clone)]
pub struct Driver {
    /// The newest CUDA version that the driver supports.
    pub driver: Version,
    /// Its devices, in the driver's order; at least one.
    pub devices: Vec<DeviceInfo>,
    /// The file that was opened, if the driver came from the given directory; `None` for the system's.
    pub file: Option<PathBuf>,
    /// The given directory.
    directory: Option<PathBuf>,
}

impl Driver {
    /// Looks for the driver: first in `directory` (the user's `cuda_lib_dir`), then on the system's library path. A
    /// driver stays loaded until the process ends, even if it is rejected.
    ///
    /// # Errors
    /// There is none; it cannot be loaded, lacks a function, is older than [`LEAST_DRIVER`], does not initialise, or
    /// has no device.
    pub fn find(directory: Option<&Path>) -> Result<Self> {
        let file = match directory {
            Some(directory) if library::keep_open(directory, symbols::DRIVER)? => Some(directory.join(symbols::DRIVER)),
            _ => None,
        };
        // SAFETY: opens the driver by its name and closes it again; its initialisers and finalisers are sound.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver);
        }
        if let (Some(directory), Some(_)) = (directory, &file) {
            // SAFETY: it is present, so this returns its handle and does not panic.
            library::same(directory, symbols::DRIVER, "cuInit", unsafe { sys::culib() })?;
        }
        let driver = version()?;
        let count = start()?;
        need(symbols::NEEDED)?;
        if !symbols::driver_has("cuEventElapsedTime_v2") && !symbols::driver_has("cuEventElapsedTime") {
            return Err(DeviceError::NoSymbol { library: symbols::DRIVER, symbol: "cuEventElapsedTime" });
        }
        let devices = (0..count).map(DeviceInfo::read).collect::<Result<Vec<_>>>()?;
        Ok(Self { driver, devices, file, directory: directory.map(Path::to_owned) })
    }

    /// The description of the device with this ordinal.
    ///
    /// # Errors
    /// There are fewer devices.
    pub fn device(&self, ordinal: usize) -> Result<&DeviceInfo> {
        self.devices.get(ordinal).ok_or(DeviceError::NoSuchDevice { asked: ordinal, count: self.devices.len() })
    }

    /// The given directory.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }
}

/// The driver's version. It is checked first, because an old driver may lack the functions used later.
fn version() -> Result<Version> {
    need(symbols::FIRST)?;
    let mut number = 0;
    // SAFETY: the function exists and may be called before cuInit; `number` is valid for writing an integer.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut number) })?;
    let found = Version::from_number(number);
    if found < LEAST_DRIVER {
        return Err(DeviceError::OldDriver { found, needed: LEAST_DRIVER });
    }
    Ok(found)
}

/// Initialises the driver; returns the number of devices, at least one.
fn start() -> Result<usize> {
    // SAFETY: the function exists; 0 is the only value that it takes. Calling it again has no effect.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_ERROR_NO_DEVICE => return Err(DeviceError::NoDevice),
        code => check("cuInit", code)?,
    }
    let mut count = 0;
    // SAFETY: the driver is initialised; `count` is valid for writing an integer.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(DeviceError::NoDevice),
    }
}

/// Checks that the driver has all of these functions. Called only when the driver is loaded.
fn need(functions: &[&'static str]) -> Result<()> {
    match functions.iter().find(|symbol| !symbols::driver_has(symbol)) {
        Some(symbol) => Err(DeviceError::NoSymbol { library: symbols::DRIVER, symbol }),
        None => Ok(()),
    }
}
