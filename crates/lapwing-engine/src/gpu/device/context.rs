//! An open device: its primary context, which is shared with everything else in the process that uses the device
//! (cublasLt does), and its memory counters.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::{CudaContext, DriverError, sys};
use parking_lot::Mutex;

use super::account::{Account, MemoryUse};
use super::error::{DeviceError, Result, check};
use super::info::DeviceInfo;
use super::probe::Driver;
use super::symbols;
use super::version::Version;

/// An open device. Everything created on it holds a reference; the context is released with the last one.
pub struct CudaDevice {
    context: Arc<CudaContext>,
    info: DeviceInfo,
    driver: Version,
    /// A stream without work: querying it detects a lost context. Null until it is created.
    pulse: sys::CUstream,
    pub(crate) memory: Account,
    pub(crate) pinned: Account,
    /// The first failure while dropping a resource, until [`CudaDevice::check`] reports it.
    dropped: Mutex<Option<DeviceError>>,
    /// Whether the loss of the context was logged.
    lost: AtomicBool,
}

// SAFETY: the context and the stream are handles that the driver allows any thread to use at any time; the other fields
// are thread-safe.
unsafe impl Send for CudaDevice {}
// SAFETY: as above.
unsafe impl Sync for CudaDevice {}

impl CudaDevice {
    /// Opens the device with this ordinal.
    ///
    /// # Errors
    /// There is no such device, it is too old, or its context cannot be created (another process may hold it
    /// exclusively).
    pub fn open(found: &Driver, ordinal: usize) -> Result<Arc<Self>> {
        let info = found.device(ordinal)?.clone();
        info.supported()?;
        let context = CudaContext::new(ordinal).map_err(|error| call("cuDevicePrimaryCtxRetain", error))?;
        // SAFETY: nothing is allocated yet, and this layer orders its own work and never creates cudarc slices. With
        // tracking enabled, cudarc's events would be recorded into captured graphs.
        unsafe { context.disable_event_tracking() };
        let mut device = Self {
            context,
            info,
            driver: found.driver,
            pulse: std::ptr::null_mut(),
            memory: Account::default(),
            pinned: Account::default(),
            dropped: Mutex::new(None),
            lost: AtomicBool::new(false),
        };
        device.bind()?;
        // SAFETY: the context is current; `pulse` is valid for writing a handle.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&mut device.pulse, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32)
        })?;
        Ok(Arc::new(device))
    }

    /// The device's properties.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The newest CUDA version that the driver supports.
    #[must_use]
    pub fn driver(&self) -> Version {
        self.driver
    }

    /// Whether this is the test suite's emulated device: never selected automatically, never benchmarked.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.info.is_emulated()
    }

    /// Checks that the device still works. Reports a failure of earlier work that was not reported yet, or, once, a
    /// failure while dropping a resource. Takes microseconds and does not wait. Do not call it from a thread with a
    /// capture in progress.
    ///
    /// # Errors
    /// The failure; [`DeviceError::is_fatal`] tells whether this process has lost the device.
    pub fn check(&self) -> Result<()> {
        if let Some(error) = self.dropped.lock().take() {
            return Err(error);
        }
        self.bind()?;
        // SAFETY: the stream belongs to this device and lives as long.
        match unsafe { sys::cuStreamQuery(self.pulse) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            code => check("cuStreamQuery", code),
        }
    }

    /// The memory in use.
    ///
    /// # Errors
    /// The driver call failed: the device is lost.
    pub fn memory(&self) -> Result<MemoryUse> {
        self.bind()?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: the context is current; both arguments are valid for writing a size.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(MemoryUse {
            device_bytes: self.memory.now(),
            device_most_bytes: self.memory.most(),
            pinned_bytes: self.pinned.now(),
            pinned_most_bytes: self.pinned.most(),
            free_bytes: free as u64,
            total_bytes: total as u64,
        })
    }

    /// Makes the context current on this thread, which every call to the driver requires.
    pub(crate) fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(|error| call("cuCtxSetCurrent", error))
    }

    /// Records a failure while dropping a resource, where no caller can receive it: in the log, and for
    /// [`Self::check`].
    pub(crate) fn record_drop_error(&self, what: &'static str, result: Result<()>) {
        let Err(error) = result else { return };
        if error.is_fatal() && self.lost.swap(true, Ordering::Relaxed) {
            // once a context is lost, every drop fails for the same reason
            tracing::debug!(device = self.info.ordinal, %error, "{what} could not be released");
        } else {
            tracing::error!(device = self.info.ordinal, %error, "{what} could not be released");
        }
        self.dropped.lock().get_or_insert(error);
    }

    /// Whether the driver has an optional function.
    pub(crate) fn has_symbol(&self, symbol: &str) -> bool {
        symbols::driver_has(symbol)
    }

    /// Checks that a resource created on `other` may be used here.
    pub(crate) fn check_owner(&self, what: &'static str, other: &Self) -> Result<()> {
        if std::ptr::eq(self, other) { Ok(()) } else { Err(DeviceError::OtherDevice { what }) }
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        if !self.pulse.is_null() {
            // SAFETY: the stream belongs to this device and is not used any more.
            let ended = self.bind().and_then(|()| check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.pulse) }));
            self.record_drop_error("a stream", ended);
        }
        let bytes = self.memory.now();
        if bytes != 0 {
            tracing::error!(device = self.info.ordinal, bytes, "device memory was not released");
        }
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("info", &self.info).field("driver", &self.driver).finish_non_exhaustive()
    }
}

fn call(name: &'static str, error: DriverError) -> DeviceError {
    match check(name, error.0) {
        Err(error) => error,
        // cudarc never returns success as an error
        Ok(()) => DeviceError::Call { call: name, code: 0, text: "no error".to_owned() },
    }
}
