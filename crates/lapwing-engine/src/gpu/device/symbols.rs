//! Which functions of the driver this layer calls. cudarc looks each one up when it is first called, and panics where a driver
//! lacks it; so all are looked up once before. A test holds the list against the sources.

use cudarc::driver::sys;

use super::error::{DeviceError, Result};

/// The driver's library, as error messages name it.
pub(super) const DRIVER: &str = "libcuda.so.1";

/// What is called before it is known that there is a device: a driver that has no device may have little else.
pub(super) const FIRST: &[&str] = &["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"];

/// Everything else that is called, cudarc's own context included.
pub(super) const NEEDED: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphNodeGetType",
    "cuGraphUpload",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamQuery",
    "cuStreamSynchronize",
];

/// What is called only after it was looked up.
#[cfg(test)]
pub(super) const OPTIONAL: &[&str] = &["cuEventElapsedTime_v2", "cuFuncGetParamInfo", "cuGetErrorString"];

/// Whether the driver has a function. Called only when the driver is loaded.
pub(super) fn driver_has(symbol: &str) -> bool {
    // SAFETY: the driver is loaded, so that this gives its handle and does not panic; the symbol is only looked up, not called.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()).is_ok() }
}

/// That the driver has all of these. Called only when the driver is loaded.
pub(super) fn need(symbols: &[&'static str]) -> Result<()> {
    match symbols.iter().find(|symbol| !driver_has(symbol)) {
        Some(symbol) => Err(DeviceError::NoSymbol { library: DRIVER, symbol }),
        None => Ok(()),
    }
}
