//! Kernels, looked up in their module once, with the attributes that the driver's compiler reports.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUmodule, CUresult};

use super::context::CudaDevice;
use super::error::{DeviceError, Result, check};

/// A module's handle, kept by work that runs its kernels.
pub(crate) struct RawModule {
    pub(crate) device: Arc<CudaDevice>,
    pub(crate) handle: CUmodule,
    pub(crate) file: String,
}

// SAFETY: a driver handle, which any thread may use at any time.
unsafe impl Send for RawModule {}
// SAFETY: as above.
unsafe impl Sync for RawModule {}

impl Drop for RawModule {
    fn drop(&mut self) {
        // SAFETY: this owns the handle; streams and graphs that run its kernels hold a reference until their work is
        // done.
        let ended = self.device.bind().and_then(|()| check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.handle) }));
        self.device.record_drop_error("a module", ended);
    }
}

/// A compiled kernel's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Registers per thread.
    pub registers: u32,
    /// Local memory (spills) per thread, in bytes.
    pub local_bytes: u32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// The most threads per block.
    pub threads: u32,
    /// The size of the first parameter in bytes, if the driver reports it (12.4 and newer).
    pub argument_bytes: Option<usize>,
}

/// A kernel. It keeps its module loaded.
pub struct Function {
    raw: Arc<RawModule>,
    handle: CUfunction,
    name: String,
    info: FunctionInfo,
    /// The dynamic shared memory that was enabled for it, in bytes; 0: the default limit.
    pub(crate) allowed: AtomicU32,
}

// SAFETY: a driver handle, which any thread may use at any time; the other fields are thread-safe.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Function").field("name", &self.name).field("info", &self.info).finish_non_exhaustive()
    }
}

impl Function {
    pub(crate) fn find(raw: &Arc<RawModule>, name: &str) -> Result<Self> {
        let missing = || DeviceError::NoKernel { file: raw.file.clone(), kernel: name.to_owned() };
        let text = CString::new(name).map_err(|_| missing())?;
        raw.device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the module is loaded in the current context; the name is NUL-terminated; `handle` is valid for
        // writing.
        match unsafe { sys::cuModuleGetFunction(&mut handle, raw.handle, text.as_ptr()) } {
            CUresult::CUDA_ERROR_NOT_FOUND => return Err(missing()),
            code => check("cuModuleGetFunction", code)?,
        }
        let info = FunctionInfo {
            registers: attribute(handle, CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: attribute(handle, CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: attribute(handle, CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            threads: attribute(handle, CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            argument_bytes: if raw.device.has_symbol("cuFuncGetParamInfo") { argument(handle) } else { None },
        };
        Ok(Self { raw: raw.clone(), handle, name: name.to_owned(), info, allowed: AtomicU32::new(0) })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its attributes.
    #[must_use]
    pub fn info(&self) -> FunctionInfo {
        self.info
    }

    pub(crate) fn device(&self) -> &Arc<CudaDevice> {
        &self.raw.device
    }

    pub(crate) fn handle(&self) -> CUfunction {
        self.handle
    }

    pub(crate) fn module(&self) -> Arc<RawModule> {
        self.raw.clone()
    }
}

fn attribute(function: CUfunction, which: CUfunction_attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the function belongs to a loaded module; `value` is valid for writing an integer.
    check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut value, which, function) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// The size of the first parameter; `None` if the driver does not report it.
fn argument(function: CUfunction) -> Option<usize> {
    let (mut offset, mut bytes) = (0, 0);
    // SAFETY: the driver has the function (the caller looked it up); both arguments are valid for writing a size.
    let code = unsafe { sys::cuFuncGetParamInfo(function, 0, &mut offset, &mut bytes) };
    (code == CUresult::CUDA_SUCCESS).then_some(bytes)
}
