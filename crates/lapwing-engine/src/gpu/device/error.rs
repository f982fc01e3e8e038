//! The errors of the device layer, with messages for a log line, and the single place where a driver's code becomes
//! such an error. cudarc's own error is never displayed: displaying it calls the driver, which may be missing.

use std::ffi::CStr;
use std::path::PathBuf;
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult};

use super::symbols;
use super::version::Version;

/// The result type of this layer.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// Why a device cannot be used, or what it reported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no driver, neither in the given directory nor on the system's library path.
    #[error("no driver: libcuda.so.1 was not found")]
    NoDriver,
    /// A library file exists but cannot be loaded.
    #[error("{} cannot be loaded: {reason}", path.display())]
    Unloadable {
        /// The file.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// This process already uses another file of the same library, or another file comes first on the system's library
    /// path.
    #[error("{} is not the {library} that this process uses: another one came first; name its folder in LD_LIBRARY_PATH", path.display())]
    DuplicateLibrary {
        /// The requested file.
        path: PathBuf,
        /// The library's name.
        library: &'static str,
    },
    /// A library lacks a required function.
    #[error("{library} has no {symbol}")]
    NoSymbol {
        /// The library's name.
        library: &'static str,
        /// The function.
        symbol: &'static str,
    },
    /// The driver is older than [`super::LEAST_DRIVER`].
    #[error("driver {found} is too old: {needed} or newer is needed")]
    OldDriver {
        /// The newest CUDA version that the driver supports.
        found: Version,
        /// The minimum version.
        needed: Version,
    },
    /// The driver reports no device, or none is visible to the process.
    #[error("no device")]
    NoDevice,
    /// There is no device with this ordinal.
    #[error("device {asked}: there {} {count}", if *count == 1 { "is" } else { "are" })]
    NoSuchDevice {
        /// The ordinal, from 0.
        asked: usize,
        /// Number of devices.
        count: usize,
    },
    /// The device is older than [`super::LEAST_CAPABILITY`].
    #[error("compute capability {}.{}: {}.{} or newer is needed", found.0, found.1, needed.0, needed.1)]
    OldDevice {
        /// The device's compute capability.
        found: (u32, u32),
        /// The minimum.
        needed: (u32, u32),
    },
    /// A call to the driver failed.
    #[error("driver: {call} failed: {text} ({code})")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The driver's code, a `CUresult`.
        code: u32,
        /// The code's name, and the driver's description of it.
        text: String,
    },
    /// A module cannot be loaded.
    #[error("module {file}: {text} ({code}){}{log}", if log.is_empty() { "" } else { ": " })]
    Module {
        /// The module's name.
        file: String,
        /// The driver's code.
        code: u32,
        /// The code's name.
        text: String,
        /// The driver compiler's log, trimmed; may be empty.
        log: String,
    },
    /// A module lacks a kernel.
    #[error("module {file} has no kernel {kernel}")]
    NoKernel {
        /// The module's name.
        file: String,
        /// The kernel.
        kernel: String,
    },
    /// A launch does not fit its kernel or the device.
    #[error("kernel {kernel}: {reason}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// What does not fit, with both numbers.
        reason: String,
    },
    /// A range is outside of its memory, or its length is zero.
    #[error("{what}: {bytes} bytes at {offset} of {size}")]
    Range {
        /// The operation.
        what: &'static str,
        /// Offset in bytes.
        offset: usize,
        /// Length in bytes.
        bytes: usize,
        /// The memory's size in bytes.
        size: usize,
    },
    /// The host tried to read staging memory that it may only write.
    #[error("staging memory towards the device is never read by the host")]
    WriteOnly,
    /// Resources of two devices were combined.
    #[error("{what} belongs to another device")]
    OtherDevice {
        /// The resource that belongs to another device.
        what: &'static str,
    },
    /// The device did not finish in time. Its work may still be running.
    #[error("not done after {} ms", after.as_millis())]
    TimedOut {
        /// How long the host waited.
        after: Duration,
    },
    /// All work of a stream ended, and its completion flag is still 0.
    #[error("the work ended without setting its flag")]
    NoFlag,
    /// A cublasLt call failed.
    #[error("cublasLt: {call} failed: {text}")]
    Lt {
        /// The library's function.
        call: &'static str,
        /// The status' name.
        text: String,
    },
    /// cublasLt is missing or cannot be used.
    #[error("no cublasLt: {reason}")]
    NoLt {
        /// The reason.
        reason: String,
    },
}

impl DeviceError {
    /// Whether the context is lost: every later call on the device fails too, until the process ends.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        // hardware faults of a context; from ECC_UNCORRECTABLE to EXTERNAL_DEVICE as the driver's documentation marks
        // them
        matches!(self, Self::Call { code, .. } | Self::Module { code, .. } if matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 911))
    }

    /// Whether the device (or the host, for staging memory) ran out of memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code: 2, .. } | Self::Module { code: 2, .. })
    }
}

/// Converts the result of a driver function. Called only when the driver is loaded.
pub(crate) fn check(call: &'static str, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        _ => Err(DeviceError::Call { call, code: code as u32, text: describe(code) }),
    }
}

/// A code's name, and the driver's description of it if there is one.
pub(crate) fn describe(code: CUresult) -> String {
    let name = format!("{code:?}");
    if !symbols::driver_has("cuGetErrorString") {
        return name;
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver is loaded and has this function (looked up above); `text` is valid for writing a pointer.
    let asked = unsafe { sys::cuGetErrorString(code, &mut text) };
    if asked != CUresult::CUDA_SUCCESS || text.is_null() {
        return name;
    }
    // SAFETY: on success the driver returns a NUL-terminated string that lives as long as the driver.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    if text == name { name } else { format!("{name}: {text}") }
}
