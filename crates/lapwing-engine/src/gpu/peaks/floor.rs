//! Measures launch overhead by replaying graphs of empty kernels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{EMPTY, args, function};
use crate::gpu::device::{Capture, CudaDevice, DeviceError, Event, Function, LaunchShape, Modules, Stream};

/// Number of replays of a graph; the fastest one counts.
const REPLAYS: usize = 101;

/// Launch overheads, each measured when it is first requested.
#[derive(Debug)]
pub struct LaunchFloors {
    stream: Stream,
    empty: Arc<Function>,
    known: BTreeMap<(usize, bool), Duration>,
}

impl LaunchFloors {
    /// For this device; measures nothing yet.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn new(device: &Arc<CudaDevice>) -> Result<Self, DeviceError> {
        let modules = Modules::new(device);
        Ok(Self { stream: Stream::new(device)?, empty: function(&modules, &EMPTY)?, known: BTreeMap::new() })
    }

    /// The time of `kernels` empty kernels, one after the other.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn of(&mut self, kernels: usize) -> Result<Duration, DeviceError> {
        self.measured(kernels, false)
    }

    /// The time that an event after each kernel adds, per event; zero if it cannot be measured.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn mark(&mut self, kernels: usize) -> Result<Duration, DeviceError> {
        let (with, without) = (self.measured(kernels, true)?, self.measured(kernels, false)?);
        Ok(with.saturating_sub(without) / u32::try_from(kernels).unwrap_or(u32::MAX).max(1))
    }

    fn measured(&mut self, kernels: usize, is_marked: bool) -> Result<Duration, DeviceError> {
        if let Some(known) = self.known.get(&(kernels, is_marked)) {
            return Ok(*known);
        }
        let time = self.measure(kernels, is_marked)?;
        self.known.insert((kernels, is_marked), time);
        Ok(time)
    }

    #[allow(unsafe_code, reason = "a launch passes addresses to the device")]
    fn measure(&mut self, kernels: usize, is_marked: bool) -> Result<Duration, DeviceError> {
        let device = Arc::clone(self.stream.device());
        let (begin, end) = (Event::timed(&device)?, Event::timed(&device)?);
        let marks = (0..kernels).filter(|_| is_marked).map(|_| Event::timed(&device)).collect::<Result<Vec<_>, _>>()?;
        let capture = Capture::begin(&mut self.stream)?;
        capture.record(&begin)?;
        for at in 0..kernels {
            let shape = LaunchShape { grid: (1, 1), threads: EMPTY.threads, shared_bytes: 0 };
            // SAFETY: the fields of PeakArgs, none of which the kernel reads
            unsafe { capture.launch(&self.empty, shape, &args(&[0; 3]))? };
            marks.get(at).map_or(Ok(()), |mark| capture.record(mark))?;
        }
        capture.record(&end)?;
        let graph = capture.end()?;
        let mut least = Duration::MAX;
        for _ in 0..REPLAYS {
            graph.launch(&self.stream)?;
            self.stream.wait()?;
            least = least.min(end.since(&begin)?);
        }
        Ok(least)
    }
}
