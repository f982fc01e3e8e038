//! Is there a driver that can be used, and which devices does it have? Everything is looked for before it is called: on a
//! machine without CUDA this gives an error and no panic.

use std::fmt;
use std::path::{Path, PathBuf};

use cudarc::driver::sys::{self, CUresult};

use super::error::{DeviceError, Result, check};
use super::info::DeviceInfo;
use super::{library, symbols};

/// The oldest driver that is used: what the shipped PTX (ISA 8.0) needs.
pub const LEAST_DRIVER: Version = Version(12, 0);

/// A CUDA version: major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(
    /// Major.
    pub u32,
    /// Minor.
    pub u32,
);

impl Version {
    /// From the driver's number: 1000 · major + 10 · minor.
    pub(super) fn of(number: i32) -> Self {
        let number = u32::try_from(number).unwrap_or(0);
        Self(number / 1000, number % 1000 / 10)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A driver that can be used. Having one proves that every function which this layer calls is there; it is the only way to a
/// [`super::Device`].
#[derive(Debug, Clone)]
pub struct Found {
    /// The newest CUDA version that the driver knows.
    pub driver: Version,
    /// Its devices, in its order; at least one.
    pub devices: Vec<DeviceInfo>,
    /// The file that was opened, where the driver came from the directory that was given; else the system's was.
    pub file: Option<PathBuf>,
    /// The directory that was given.
    directory: Option<PathBuf>,
}

impl Found {
    /// Looks for the driver: first in `directory` (the user's `cuda_lib_dir`), then where the system looks. A driver stays
    /// loaded until the process ends, also where it is refused.
    ///
    /// # Errors
    /// There is none, it cannot be loaded, lacks a function, is older than [`LEAST_DRIVER`], does not start, or has no device.
    pub fn find(directory: Option<&Path>) -> Result<Self> {
        let file = match directory {
            Some(directory) if library::keep_open(directory, symbols::DRIVER)? => Some(directory.join(symbols::DRIVER)),
            _ => None,
        };
        // SAFETY: opens the driver by its name and closes it again: a driver's initialisers and finalisers are sound.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver);
        }
        if let (Some(directory), Some(_)) = (directory, &file) {
            // SAFETY: it is present, so that this gives its handle and does not panic.
            library::same(directory, symbols::DRIVER, "cuInit", unsafe { sys::culib() })?;
        }
        let driver = version()?;
        let count = start()?;
        symbols::need(symbols::NEEDED)?;
        if !symbols::driver_has("cuEventElapsedTime_v2") && !symbols::driver_has("cuEventElapsedTime") {
            return Err(DeviceError::NoSymbol { library: symbols::DRIVER, symbol: "cuEventElapsedTime" });
        }
        let devices = (0..count).map(DeviceInfo::read).collect::<Result<Vec<_>>>()?;
        Ok(Self { driver, devices, file, directory: directory.map(Path::to_owned) })
    }

    /// Device `ordinal`'s description.
    ///
    /// # Errors
    /// There are fewer devices.
    pub fn device(&self, ordinal: usize) -> Result<&DeviceInfo> {
        self.devices.get(ordinal).ok_or(DeviceError::NoSuchDevice { asked: ordinal, count: self.devices.len() })
    }

    /// The directory that was given.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }
}

/// The driver's version, read before anything else: an old driver may lack what comes later.
fn version() -> Result<Version> {
    symbols::need(symbols::FIRST)?;
    let mut number = 0;
    // SAFETY: the function is there and may be called before cuInit; `number` is a valid place for a number.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut number) })?;
    let found = Version::of(number);
    if found < LEAST_DRIVER {
        return Err(DeviceError::OldDriver { found, needed: LEAST_DRIVER });
    }
    Ok(found)
}

/// Starts the driver; how many devices it has, at least one.
fn start() -> Result<usize> {
    // SAFETY: the function is there; 0 is the only value that it takes. Calling it again does nothing.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_ERROR_NO_DEVICE => return Err(DeviceError::NoDevice),
        code => check("cuInit", code)?,
    }
    let mut count = 0;
    // SAFETY: the driver is initialised; `count` is a valid place for a number.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(DeviceError::NoDevice),
    }
}
