//! Events: marks in a stream's work, which tell a time or are waited for.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{self, CUevent, CUevent_flags, CUresult};

use super::context::Device;
use super::error::{DeviceError, Result, check};
use super::probe::Version;

/// The driver that first has elapsed time's second form.
const RENAMED: Version = Version(12, 8);

/// An event's handle, kept by whatever may still record it.
pub(super) struct RawEvent {
    pub(super) device: Arc<Device>,
    pub(super) handle: CUevent,
}

// SAFETY: a handle of the driver's, which any thread may use at any time.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

impl Drop for RawEvent {
    fn drop(&mut self) {
        // SAFETY: the handle is this event's; nobody holds it any more. The driver waits for work that records it.
        let ended = self.device.bind().and_then(|()| check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.handle) }));
        self.device.note("an event", ended);
    }
}

/// A mark in a stream's work.
pub struct Event {
    pub(super) raw: Arc<RawEvent>,
    timed: bool,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").field("timed", &self.timed).finish_non_exhaustive()
    }
}

impl Event {
    /// An event that tells a time.
    ///
    /// # Errors
    /// The driver's.
    pub fn timed(device: &Arc<Device>) -> Result<Self> {
        Self::new(device, CUevent_flags::CU_EVENT_DEFAULT as u32, true)
    }

    /// An event that is waited for without using the processor, and tells no time.
    ///
    /// # Errors
    /// The driver's.
    pub fn blocking(device: &Arc<Device>) -> Result<Self> {
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        Self::new(device, flags, false)
    }

    fn new(device: &Arc<Device>, flags: u32, timed: bool) -> Result<Self> {
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is current; `handle` is a valid place for a handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        Ok(Self { raw: Arc::new(RawEvent { device: device.clone(), handle }), timed })
    }

    /// Waits until the work before its last record is done; at once where it was never recorded.
    ///
    /// # Errors
    /// A fault of that work, or of any before it.
    pub fn wait(&self) -> Result<()> {
        self.raw.device.bind()?;
        // SAFETY: the handle is this event's.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw.handle) })
    }

    /// Whether the work before its last record is done; true where it was never recorded.
    ///
    /// # Errors
    /// A fault of that work, or of any before it.
    pub fn poll(&self) -> Result<bool> {
        self.raw.device.bind()?;
        // SAFETY: the handle is this event's.
        match unsafe { sys::cuEventQuery(self.raw.handle) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Device time between an earlier event's last record and this one's, to half a microsecond. Both must be done.
    ///
    /// # Errors
    /// One of them is not done, was never recorded or tells no time; a fault of the work between.
    pub fn since(&self, earlier: &Self) -> Result<Duration> {
        let device = &self.raw.device;
        device.own("an event", &earlier.raw.device)?;
        device.bind()?;
        let mut milliseconds = 0_f32;
        let (start, end) = (earlier.raw.handle, self.raw.handle);
        if device.driver() >= RENAMED && device.has("cuEventElapsedTime_v2") {
            // SAFETY: the driver has the function (just looked up); both handles are events of this context.
            check("cuEventElapsedTime", unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, start, end) })?;
        } else {
            elapsed_before_12_8(&mut milliseconds, start, end)?;
        }
        // below zero where the two were recorded in the other order
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) * 1e-3).unwrap_or_default())
    }
}

/// The same on drivers before 12.8: cudarc's bindings no longer name the function that those have.
fn elapsed_before_12_8(milliseconds: &mut f32, start: CUevent, end: CUevent) -> Result<()> {
    type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
    const NAME: &str = "cuEventElapsedTime";
    // SAFETY: the driver is loaded; the type is the function's, by every version of the driver's header that has it.
    let elapsed = unsafe { sys::culib().get::<Elapsed>(NAME.as_bytes()) };
    let elapsed = elapsed.map_err(|_| DeviceError::NoSymbol { library: super::symbols::DRIVER, symbol: NAME })?;
    // SAFETY: both handles are events of the current context; `milliseconds` is a valid place for a number.
    check(NAME, unsafe { elapsed(milliseconds, start, end) })
}
