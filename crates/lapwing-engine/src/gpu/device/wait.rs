//! Waiting for a flag that a request's last kernel sets in mapped host memory: quicker than the driver's own ways by the time that
//! those need to notice. The device is asked from time to time, so that a fault ends the wait.

use std::time::Duration;

use super::error::{DeviceError, Result};
use super::pinned::Pinned;
use super::stream::Stream;

/// How a flag is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How often the flag is read before the device is asked, and the time looked at; at least once.
    pub reads: u32,
    /// After what time the thread sleeps for a while before each further read, and asks the device each time.
    pub awake: Duration,
    /// For how long it sleeps.
    pub nap: Duration,
    /// How long to wait at most.
    pub limit: Duration,
    /// The time since some moment, never going back.
    pub clock: fn() -> Duration,
}

impl Stream {
    /// Waits until flag `index` of `control` is no longer 0, using the processor; gives its value. The host sets it to 0 before
    /// it launches the work.
    ///
    /// # Errors
    /// A fault of the device; the stream's work ended without the flag ([`DeviceError::NoFlag`]); the time is over
    /// ([`DeviceError::TimedOut`]: the work may still be under way); the flag is outside of the memory.
    pub fn wait_flag(&self, control: &Pinned, index: usize, patience: &Patience) -> Result<u32> {
        let mut began = None;
        let mut waited = Duration::ZERO;
        loop {
            let is_long = waited > patience.awake;
            if is_long {
                std::thread::sleep(patience.nap);
            }
            for _ in 0..if is_long { 1 } else { patience.reads.max(1) } {
                match control.flag(index)? {
                    0 => std::hint::spin_loop(),
                    value => return Ok(value),
                }
            }
            if self.poll()? {
                // it may have been set since it was read
                return match control.flag(index)? {
                    0 => Err(DeviceError::NoFlag),
                    value => Ok(value),
                };
            }
            // the clock is looked at only by those who wait for long
            let now = (patience.clock)();
            waited = now.saturating_sub(*began.get_or_insert(now));
            if waited > patience.limit {
                return Err(DeviceError::TimedOut { after: waited });
            }
        }
    }
}
