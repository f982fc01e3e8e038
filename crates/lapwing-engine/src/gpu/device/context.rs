//! A device that is in use: its primary context, which it shares with whatever else in the process uses the device (cublasLt
//! does), and what is counted about it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::{CudaContext, DriverError, sys};
use parking_lot::Mutex;

use super::account::{Account, MemoryUse};
use super::error::{DeviceError, Result, check};
use super::info::DeviceInfo;
use super::module::Loaded;
use super::probe::{Found, Version};
use super::symbols;

/// A device in use. Everything made on it holds it; the context ends with the last of them.
pub struct Device {
    context: Arc<CudaContext>,
    info: DeviceInfo,
    driver: Version,
    /// A stream that never has work: asking it is how a lost context is noticed. Null until it is made.
    pulse: sys::CUstream,
    pub(super) memory: Account,
    pub(super) pinned: Account,
    pub(super) modules: Loaded,
    /// The first failure of something that was dropped, until [`Device::check`] tells it.
    dropped: Mutex<Option<DeviceError>>,
    /// Whether the log has been told that the context is lost.
    lost: AtomicBool,
}

// SAFETY: the context and the stream are handles, which the driver lets any thread use at any time; all else is safe to share.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Takes device `ordinal` into use.
    ///
    /// # Errors
    /// There is no such device, it is too old, or its context cannot be made (another process may hold it exclusively).
    pub fn open(found: &Found, ordinal: usize) -> Result<Arc<Self>> {
        let info = found.device(ordinal)?.clone();
        info.supported()?;
        let context = CudaContext::new(ordinal).map_err(|error| call("cuDevicePrimaryCtxRetain", error))?;
        // SAFETY: nothing was allocated yet, and no slice of cudarc's is ever made here: this layer orders its own work. Were it
        // on, cudarc's events would end up in captured graphs.
        unsafe { context.disable_event_tracking() };
        let mut device = Self {
            context,
            info,
            driver: found.driver,
            pulse: std::ptr::null_mut(),
            memory: Account::default(),
            pinned: Account::default(),
            modules: Loaded::default(),
            dropped: Mutex::new(None),
            lost: AtomicBool::new(false),
        };
        device.bind()?;
        // SAFETY: the context is current; `pulse` is a valid place for a handle.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&mut device.pulse, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32)
        })?;
        Ok(Arc::new(device))
    }

    /// What the device is.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The newest CUDA version that the driver knows.
    #[must_use]
    pub fn driver(&self) -> Version {
        self.driver
    }

    /// Whether this is the test suite's device: never chosen by itself, never measured.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.info.is_emulated()
    }

    /// Asks whether the device still works: a fault of any earlier work that was not told yet, or a failure of something that
    /// was dropped, which is told once. Takes microseconds; waits for nothing. Not from a thread that captures.
    ///
    /// # Errors
    /// What happened; [`DeviceError::is_fatal`] tells whether the device is lost to this process.
    pub fn check(&self) -> Result<()> {
        if let Some(error) = self.dropped.lock().take() {
            return Err(error);
        }
        self.bind()?;
        // SAFETY: the stream is this device's, and lives as long as it does.
        match unsafe { sys::cuStreamQuery(self.pulse) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            code => check("cuStreamQuery", code),
        }
    }

    /// How much memory is in use.
    ///
    /// # Errors
    /// The driver does not answer: the device is lost.
    pub fn memory(&self) -> Result<MemoryUse> {
        self.bind()?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: the context is current; both are valid places for a size.
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

    /// Makes the context this thread's: every call to the driver comes after this.
    pub(super) fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(|error| call("cuCtxSetCurrent", error))
    }

    /// Notes what went wrong in a drop, where nobody can be told: in the log, and for [`Self::check`].
    pub(super) fn note(&self, what: &'static str, result: Result<()>) {
        let Err(error) = result else { return };
        if error.is_fatal() && self.lost.swap(true, Ordering::Relaxed) {
            // once a context is lost, every drop fails for the same reason
            tracing::debug!(device = self.info.ordinal, %error, "{what} could not be released");
        } else {
            tracing::error!(device = self.info.ordinal, %error, "{what} could not be released");
        }
        self.dropped.lock().get_or_insert(error);
    }

    /// Whether the driver has a function that may be missing.
    pub(super) fn has(&self, symbol: &str) -> bool {
        symbols::driver_has(symbol)
    }

    /// That something made on `other` may be used here.
    pub(super) fn own(&self, what: &'static str, other: &Self) -> Result<()> {
        if std::ptr::eq(self, other) { Ok(()) } else { Err(DeviceError::OtherDevice { what }) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.pulse.is_null() {
            // SAFETY: the stream is this device's and is used no more.
            let ended = self.bind().and_then(|()| check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.pulse) }));
            self.note("a stream", ended);
        }
        let bytes = self.memory.now();
        if bytes != 0 {
            tracing::error!(device = self.info.ordinal, bytes, "device memory was not released");
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("info", &self.info).field("driver", &self.driver).finish_non_exhaustive()
    }
}

fn call(name: &'static str, error: DriverError) -> DeviceError {
    match check(name, error.0) {
        Err(error) => error,
        // cudarc makes no error of success
        Ok(()) => DeviceError::Call { call: name, code: 0, text: "no error".to_owned() },
    }
}
