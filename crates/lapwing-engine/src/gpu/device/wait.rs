//! Waits for a flag that a request's last kernel sets in mapped host memory: faster than the driver's own
//! synchronisation by the time that it needs to notice. The device is checked periodically, so that a failure ends the
//! wait.

use std::time::Duration;

use super::error::{DeviceError, Result};
use super::pinned::PinnedBuffer;
use super::stream::Stream;

/// How to wait for a flag.
#[derive(Debug, Clone, Copy)]
pub struct WaitPolicy {
    /// Number of reads of the flag between two checks of the device and the clock; at least one.
    pub reads: u32,
    /// Duration after which the thread sleeps before each further read, and checks the device each time.
    pub spin_for: Duration,
    /// Duration of each sleep.
    pub sleep: Duration,
    /// The longest wait.
    pub limit: Duration,
    /// A monotonic clock: the time since some fixed moment.
    pub clock: fn() -> Duration,
}

impl Stream {
    /// Waits, spinning, until flag `index` of `control` is no longer 0; returns its value. The host sets it to 0 before
    /// it launches the work.
    ///
    /// # Errors
    /// The device failed; the stream's work ended without setting the flag ([`DeviceError::NoFlag`]); the limit passed
    /// ([`DeviceError::TimedOut`]: the work may still be running); the flag is outside of the memory.
    pub fn wait_flag(&self, control: &PinnedBuffer, index: usize, policy: &WaitPolicy) -> Result<u32> {
        let mut began = None;
        let mut waited = Duration::ZERO;
        loop {
            let is_long = waited > policy.spin_for;
            if is_long {
                std::thread::sleep(policy.sleep);
            }
            for _ in 0..if is_long { 1 } else { policy.reads.max(1) } {
                match control.flag(index)? {
                    0 => std::hint::spin_loop(),
                    value => return Ok(value),
                }
            }
            if self.poll()? {
                // it may have been set since the last read
                return match control.flag(index)? {
                    0 => Err(DeviceError::NoFlag),
                    value => Ok(value),
                };
            }
            // only long waits read the clock
            let now = (policy.clock)();
            waited = now.saturating_sub(*began.get_or_insert(now));
            if waited > policy.limit {
                return Err(DeviceError::TimedOut { after: waited });
            }
        }
    }
}
