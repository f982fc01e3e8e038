//! Looks for a usable cublasLt. It is loaded only when requested, because the library is half a gigabyte.

use std::path::Path;

use cudarc::cublaslt::sys;

use super::super::error::{DeviceError, Result};
use super::super::library;
use super::super::version::Version;

/// File names in the user's directory, in order of preference.
const FILES: [&str; 2] = ["libcublasLt.so.13", "libcublasLt.so.12"];
/// The minimum version: the descriptors' values are those of 12.0 and newer.
const LEAST: Version = Version(12, 0);

/// The functions that are called.
pub(crate) const NEEDED: &[&str] = &[
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtGetVersion",
    "cublasLtMatmul",
    "cublasLtMatmulAlgoConfigGetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
];

/// Looks for the library and returns its version.
pub(crate) fn find(directory: Option<&Path>) -> Result<Version> {
    let no = |reason: String| DeviceError::NoLt { reason };
    // it would round the factors of fp32 products to TF32 despite the requested precision
    if std::env::var_os("NVIDIA_TF32_OVERRIDE").is_some_and(|value| value != "0") {
        return Err(no("NVIDIA_TF32_OVERRIDE is set: fp32 would not be fp32".to_owned()));
    }
    let mut file = None;
    for name in FILES {
        let Some(directory) = directory else { break };
        if library::keep_open(directory, name).map_err(|error| no(error.to_string()))? {
            file = Some((directory, name));
            break;
        }
    }
    // SAFETY: opens the library by its name and closes it again; its initialisers and finalisers are sound.
    if !unsafe { sys::is_culib_present() } {
        return Err(no("libcublasLt.so was not found (.13 or .12)".to_owned()));
    }
    // SAFETY: it is present, so this returns its handle and does not panic.
    let used = unsafe { sys::culib() };
    if let Some((directory, name)) = file {
        library::same(directory, name, "cublasLtCreate", used).map_err(|error| no(error.to_string()))?;
    }
    for symbol in NEEDED {
        // SAFETY: only looked up, not called.
        if unsafe { used.get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_err() {
            return Err(no(format!("it has no {symbol}")));
        }
    }
    // SAFETY: the function exists and takes no arguments.
    let number = u32::try_from(unsafe { sys::cublasLtGetVersion() }).unwrap_or(0);
    let found = Version(number / 10_000, number % 10_000 / 100);
    if found < LEAST {
        return Err(no(format!("{found} is too old: {LEAST} or newer is needed")));
    }
    Ok(found)
}

/// Converts the result of a library function. Called only when the library is loaded.
pub(crate) fn check(call: &'static str, status: sys::cublasStatus_t) -> Result<()> {
    match status {
        sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        _ => Err(DeviceError::Lt { call, text: format!("{status:?}") }),
    }
}
