//! CUDA events: markers in a stream's work that can be timed or waited for.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{self, CUevent, CUevent_flags, CUresult};

use super::context::CudaDevice;
use super::error::{DeviceError, Result, check};
use super::version::Version;

/// The first driver with the second version of the elapsed-time function.
const RENAMED: Version = Version(12, 8);

/// An event's handle, shared with everything that may still record it.
pub(crate) struct RawEvent {
    pub(crate) device: Arc<CudaDevice>,
    pub(crate) handle: CUevent,
}

// SAFETY: a driver handle, which any thread may use at any time.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

impl Drop for RawEvent {
    fn drop(&mut self) {
        // SAFETY: this owns the handle, and no references remain. The driver waits for work that records it.
        let ended = self.device.bind().and_then(|()| check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.handle) }));
        self.device.record_drop_error("an event", ended);
    }
}

/// A marker in a stream's work.
pub struct Event {
    pub(crate) raw: Arc<RawEvent>,
    timed: bool,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").field("timed", &self.timed).finish_non_exhaustive()
    }
}

impl Event {
    /// Creates an event with a timestamp.
    ///
    /// # Errors
    /// The driver's error.
    pub fn timed(device: &Arc<CudaDevice>) -> Result<Self> {
        Self::new(device, CUevent_flags::CU_EVENT_DEFAULT as u32, true)
    }

    /// Creates an event without a timestamp whose waiters sleep instead of spinning.
    ///
    /// # Errors
    /// The driver's error.
    pub fn blocking(device: &Arc<CudaDevice>) -> Result<Self> {
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        Self::new(device, flags, false)
    }

    fn new(device: &Arc<CudaDevice>, flags: u32, timed: bool) -> Result<Self> {
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is current; `handle` is valid for writing a handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        Ok(Self { raw: Arc::new(RawEvent { device: device.clone(), handle }), timed })
    }

    /// Waits until the work before its last record is done; returns at once if it was never recorded.
    ///
    /// # Errors
    /// That work, or work before it, failed.
    pub fn wait(&self) -> Result<()> {
        self.raw.device.bind()?;
        // SAFETY: this owns the handle.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw.handle) })
    }

    /// Whether the work before its last record is done; true if it was never recorded.
    ///
    /// # Errors
    /// That work, or work before it, failed.
    pub fn poll(&self) -> Result<bool> {
        self.raw.device.bind()?;
        // SAFETY: this owns the handle.
        match unsafe { sys::cuEventQuery(self.raw.handle) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Device time between the last record of `earlier` and that of this event, with a resolution of half a
    /// microsecond. Both must be done.
    ///
    /// # Errors
    /// One of them is not done, was never recorded or has no timestamp; the work between them failed.
    pub fn since(&self, earlier: &Self) -> Result<Duration> {
        let device = &self.raw.device;
        device.check_owner("an event", &earlier.raw.device)?;
        device.bind()?;
        let mut milliseconds = 0_f32;
        let (start, end) = (earlier.raw.handle, self.raw.handle);
        if device.driver() >= RENAMED && device.has_symbol("cuEventElapsedTime_v2") {
            // SAFETY: the driver has the function (looked up above); both handles are events of this context.
            check("cuEventElapsedTime", unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, start, end) })?;
        } else {
            elapsed_before_12_8(&mut milliseconds, start, end)?;
        }
        // negative if the two were recorded in the other order
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) * 1e-3).unwrap_or_default())
    }
}

/// The same for drivers before 12.8: cudarc's bindings do not have their version of the function.
fn elapsed_before_12_8(milliseconds: &mut f32, start: CUevent, end: CUevent) -> Result<()> {
    type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
    const NAME: &str = "cuEventElapsedTime";
    // SAFETY: the driver is loaded; the type is the function's in every version of the driver's header that has it.
    let elapsed = unsafe { sys::culib().get::<Elapsed>(NAME.as_bytes()) };
    let elapsed = elapsed.map_err(|_| DeviceError::NoSymbol { library: super::symbols::DRIVER, symbol: NAME })?;
    // SAFETY: both handles are events of the current context; `milliseconds` is valid for writing a float.
    check(NAME, unsafe { elapsed(milliseconds, start, end) })
}
