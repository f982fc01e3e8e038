//! How long a piece of work takes on the device, without what the host needs to give it: several of it are one graph, between two
//! events. Given one by one, short work would take as long as the driver takes to accept it.

use std::time::Duration;

use super::capture::Capture;
use super::error::Result;
use super::event::Event;
use super::stream::Stream;

/// The most pieces of one graph.
const MOST: u128 = 16;
/// How long a graph shall take: an event's time, which is half a microsecond, counts little beside it.
const ENOUGH: Duration = Duration::from_micros(100);
/// How often the graph is launched, also where it takes long; the median counts.
const SAMPLES: usize = 7;
const SAMPLES_OF_LONG: usize = 3;
/// Longer than this is long: noise is a small part of it, and somebody may wait.
const LONG: Duration = Duration::from_millis(1);

impl Stream {
    /// Device time of what `give` gives to the stream, the median, after two that do not count.
    ///
    /// # Errors
    /// What `give` says; a fault of the device.
    pub fn time(&mut self, give: impl Fn(&Self) -> Result<()>) -> Result<Duration> {
        let (begin, end) = (Event::timed(self.device())?, Event::timed(self.device())?);
        // not in a capture at first: the driver, or a library, may load something
        give(self)?;
        self.wait()?;
        self.record(&begin)?;
        give(self)?;
        self.record(&end)?;
        self.wait()?;
        let about = end.since(&begin)?;
        let count = (ENOUGH.as_nanos() / about.as_nanos().max(1)).clamp(1, MOST) as u32;
        let capture = Capture::begin(self)?;
        capture.record(&begin)?;
        for _ in 0..count {
            give(capture.stream())?;
        }
        capture.record(&end)?;
        let graph = capture.end()?;
        let mut samples = vec![Duration::ZERO; if about > LONG { SAMPLES_OF_LONG } else { SAMPLES }];
        for sample in &mut samples {
            graph.launch(self)?;
            self.wait()?;
            *sample = end.since(&begin)? / count;
        }
        samples.sort_unstable();
        Ok(samples[samples.len() / 2])
    }
}
