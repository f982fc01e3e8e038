//! What can go wrong between the engine and a device, in words for a log line; and the one place where a driver's code becomes
//! such an error. cudarc's own error is never shown: showing it calls the driver, which may be what is missing.

use std::ffi::CStr;
use std::path::PathBuf;
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult};

use super::probe::Version;
use super::symbols;

/// What every function of this layer gives.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// Why a device cannot be used, or what it reported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no driver: neither in the directory that was given nor where the system looks.
    #[error("no driver: libcuda.so.1 was not found")]
    NoDriver,
    /// A library's file is there and cannot be loaded.
    #[error("{} cannot be loaded: {reason}", path.display())]
    Unloadable {
        /// The file.
        path: PathBuf,
        /// What the loader says.
        reason: String,
    },
    /// Another file of the same library is in use in this process already, or comes first where the system looks.
    #[error("{} is not the {library} that this process uses: another one came first; name its folder in LD_LIBRARY_PATH", path.display())]
    Twice {
        /// The file that was asked for.
        path: PathBuf,
        /// The library's name.
        library: &'static str,
    },
    /// A library lacks a function that is needed.
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
        /// The newest CUDA version that the driver knows.
        found: Version,
        /// The least that is needed.
        needed: Version,
    },
    /// The driver knows no device, or may see none.
    #[error("no device")]
    NoDevice,
    /// There is no device of this number.
    #[error("device {asked}: there {} {count}", if *count == 1 { "is" } else { "are" })]
    NoSuchDevice {
        /// The number, from 0.
        asked: usize,
        /// How many devices there are.
        count: usize,
    },
    /// The device is older than [`super::LEAST_CAPABILITY`].
    #[error("compute capability {}.{}: {}.{} or newer is needed", found.0, found.1, needed.0, needed.1)]
    OldDevice {
        /// The device's.
        found: (u32, u32),
        /// The least that is needed.
        needed: (u32, u32),
    },
    /// A call to the driver failed.
    #[error("driver: {call} failed: {text} ({code})")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The driver's code, a `CUresult`.
        code: u32,
        /// The code's name, and what the driver says about it.
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
        /// What the driver's compiler says, trimmed; empty where it says nothing.
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
    /// A place in memory is outside of it, or a length is zero.
    #[error("{what}: {bytes} bytes at {offset} of {size}")]
    Range {
        /// What was to be done.
        what: &'static str,
        /// Where, in bytes.
        offset: usize,
        /// How many bytes.
        bytes: usize,
        /// The memory's size in bytes.
        size: usize,
    },
    /// Staging memory that the host only writes was to be read.
    #[error("staging memory towards the device is never read by the host")]
    WriteOnly,
    /// Things of two devices were used together.
    #[error("{what} belongs to another device")]
    OtherDevice {
        /// What does not belong.
        what: &'static str,
    },
    /// The device did not finish in time. Its work may still be under way.
    #[error("not done after {} ms", after.as_millis())]
    TimedOut {
        /// How long was waited.
        after: Duration,
    },
    /// All work of a stream ended, and the flag that it should have set is 0.
    #[error("the work ended without setting its flag")]
    NoFlag,
    /// cublasLt refused a call.
    #[error("cublasLt: {call} failed: {text}")]
    Lt {
        /// The library's function.
        call: &'static str,
        /// The status' name.
        text: String,
    },
    /// cublasLt is not there, or cannot be used.
    #[error("no cublasLt: {reason}")]
    NoLt {
        /// Why.
        reason: String,
    },
}

impl DeviceError {
    /// Whether the context is lost: every later call on the device fails too, until the process ends.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        // hardware faults of a context; from ECC_UNCORRECTABLE on to EXTERNAL_DEVICE as the driver's documentation marks them
        matches!(self, Self::Call { code, .. } | Self::Module { code, .. } if matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 911))
    }

    /// Whether the device (or the host, for staging memory) has too little memory left.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code: 2, .. } | Self::Module { code: 2, .. })
    }
}

/// The result of a driver's function. Called only when the driver is loaded.
pub(super) fn check(call: &'static str, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        _ => Err(DeviceError::Call { call, code: code as u32, text: describe(code) }),
    }
}

/// A code's name, and the driver's words for it where it has any.
pub(super) fn describe(code: CUresult) -> String {
    let name = format!("{code:?}");
    if !symbols::driver_has("cuGetErrorString") {
        return name;
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver is loaded and has this function (just looked up); `text` is a valid place for a pointer.
    let asked = unsafe { sys::cuGetErrorString(code, &mut text) };
    if asked != CUresult::CUDA_SUCCESS || text.is_null() {
        return name;
    }
    // SAFETY: on success the driver gives a string that lives as long as the driver and ends with a zero.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    if text == name { name } else { format!("{name}: {text}") }
}
