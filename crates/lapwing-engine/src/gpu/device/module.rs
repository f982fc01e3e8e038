//! Modules and their kernels: PTX that the driver compiles for the device when it is loaded. A device loads each module
//! once, however many models use its kernels.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{self, CUjit_option, CUresult};
use parking_lot::Mutex;

use super::context::CudaDevice;
use super::error::{DeviceError, Result, describe};
use super::function::{Function, RawModule};

/// The most that is read of the driver compiler's log, in bytes.
const LOG_BYTES: usize = 16 << 10;

/// The modules that a user of the device holds, by name. A module stays loaded as long as anyone holds it.
pub struct Modules {
    device: Arc<CudaDevice>,
    used: Mutex<HashMap<String, Arc<Module>>>,
}

impl std::fmt::Debug for Modules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Modules").field("used", &self.used.lock().keys()).finish_non_exhaustive()
    }
}

impl Modules {
    /// An empty set.
    #[must_use]
    pub fn new(device: &Arc<CudaDevice>) -> Self {
        Self { device: device.clone(), used: Mutex::default() }
    }

    /// Returns the module `file`, compiled from `ptx` unless it is already loaded on the device; then `ptx` is not
    /// read. Compiling can take seconds if the driver's cache does not have the module.
    ///
    /// # Errors
    /// The driver rejects the PTX; the error has its compiler's log.
    pub fn load(&self, file: &str, ptx: &str) -> Result<Arc<Module>> {
        let mut used = self.used.lock();
        if let Some(module) = used.get(file) {
            return Ok(module.clone());
        }
        let module = load(&self.device, file, ptx)?;
        used.insert(file.to_owned(), module.clone());
        Ok(module)
    }
}

/// The modules that are loaded on one device, by name.
type LoadedModules = Arc<Mutex<HashMap<String, Weak<Module>>>>;

/// The modules of each open device. The device itself knows none: a module holds its device.
static LOADED: Mutex<Vec<(Weak<CudaDevice>, LoadedModules)>> = Mutex::new(Vec::new());

fn loaded_on(device: &Arc<CudaDevice>) -> LoadedModules {
    let mut all = LOADED.lock();
    all.retain(|(open, _)| open.strong_count() > 0);
    if let Some((_, modules)) = all.iter().find(|(open, _)| open.as_ptr() == Arc::as_ptr(device)) {
        return modules.clone();
    }
    let modules = LoadedModules::default();
    all.push((Arc::downgrade(device), modules.clone()));
    modules
}

/// Returns the device's module `file`, compiled from `ptx` unless another user of the device holds it.
fn load(device: &Arc<CudaDevice>, file: &str, ptx: &str) -> Result<Arc<Module>> {
    let loaded = loaded_on(device);
    // locked while compiling: otherwise another thread would compile the same module again
    let mut loaded = loaded.lock();
    if let Some(module) = loaded.get(file).and_then(Weak::upgrade) {
        return Ok(module);
    }
    let raw = compile(device, file, ptx)?;
    let module = Arc::new(Module { raw: Arc::new(raw), functions: Mutex::default() });
    loaded.insert(file.to_owned(), Arc::downgrade(&module));
    Ok(module)
}

/// A loaded module.
pub struct Module {
    raw: Arc<RawModule>,
    functions: Mutex<HashMap<String, Arc<Function>>>,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({})", self.raw.file)
    }
}

impl Module {
    /// Returns the kernel `name`, looked up the first time.
    ///
    /// # Errors
    /// The module has no such kernel.
    pub fn function(&self, name: &str) -> Result<Arc<Function>> {
        let mut functions = self.functions.lock();
        if let Some(function) = functions.get(name) {
            return Ok(function.clone());
        }
        let function = Arc::new(Function::find(&self.raw, name)?);
        functions.insert(name.to_owned(), function.clone());
        Ok(function)
    }
}

fn compile(device: &Arc<CudaDevice>, file: &str, ptx: &str) -> Result<RawModule> {
    let refused = |code: CUresult, log: &str| DeviceError::Module {
        file: file.to_owned(),
        code: code as u32,
        text: describe(code),
        log: log.to_owned(),
    };
    let invalid = |_| refused(CUresult::CUDA_ERROR_INVALID_PTX, "the text has a zero in it");
    let text = CString::new(ptx).map_err(invalid)?;
    device.bind()?;
    let mut log = vec![0_u8; LOG_BYTES];
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // the driver takes this integer in place of a pointer
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES - 1)];
    let mut handle = std::ptr::null_mut();
    // SAFETY: the context is current; the text is NUL-terminated; the two options have their values, and the log buffer
    // has the size that is passed and lives until the call returns; `handle` is valid for writing.
    let code =
        unsafe { sys::cuModuleLoadDataEx(&mut handle, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) };
    if code != CUresult::CUDA_SUCCESS {
        let message = log.split(|byte| *byte == 0).next().unwrap_or_default();
        return Err(refused(code, String::from_utf8_lossy(message).trim()));
    }
    Ok(RawModule { device: device.clone(), handle, file: file.to_owned() })
}
