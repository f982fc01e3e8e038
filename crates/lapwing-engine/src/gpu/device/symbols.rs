//! The driver functions that this layer calls. cudarc looks each one up when it is first called, and panics if the
//! driver lacks it; so all are looked up once before. A test compares the list with the sources.

use cudarc::driver::sys;

/// The driver's library, as named in error messages.
pub(crate) const DRIVER: &str = "libcuda.so.1";

/// Functions called before the device count is known: a driver without a device may have little else.
pub(crate) const FIRST: &[&str] = &["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"];

/// All other functions, including those called by cudarc's context.
pub(crate) const NEEDED: &[&str] = &[
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

/// Functions that are called only after a lookup.
#[cfg(test)]
pub(crate) const OPTIONAL: &[&str] = &["cuEventElapsedTime_v2", "cuFuncGetParamInfo", "cuGetErrorString"];

/// Whether the driver has a function. Called only when the driver is loaded.
pub(crate) fn driver_has(symbol: &str) -> bool {
    // SAFETY: the driver is loaded, so this returns its handle and does not panic; the symbol is looked up, not called.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()).is_ok() }
}
