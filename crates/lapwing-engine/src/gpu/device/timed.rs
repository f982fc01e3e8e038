//! Measures the device time of a piece of work without the host's launch overhead: several repetitions form one graph
//! between two events. Enqueued one by one, short work would take as long as the driver needs to accept it.

use std::time::Duration;

use super::capture::Capture;
use super::error::Result;
use super::event::Event;
use super::stream::Stream;

/// The most repetitions in one graph.
const MOST: u128 = 16;
/// The target duration of a graph, beside which an event's resolution of half a microsecond is negligible.
const ENOUGH: Duration = Duration::from_micros(100);
/// Number of launches of the graph, also for long work; the median counts.
const SAMPLES: usize = 7;
const SAMPLES_OF_LONG: usize = 3;
/// Work above this duration is long: noise is a small part of it, and a request may be waiting.
const LONG: Duration = Duration::from_millis(1);

impl Stream {
    /// Median device time of the work that `work` enqueues, after two warm-up runs.
    ///
    /// # Errors
    /// The error of `work`, or of the device.
    pub fn time(&mut self, work: impl Fn(&Self) -> Result<()>) -> Result<Duration> {
        let (begin, end) = (Event::timed(self.device())?, Event::timed(self.device())?);
        // first without a capture: the driver, or a library, may load something
        work(self)?;
        self.wait()?;
        self.record(&begin)?;
        work(self)?;
        self.record(&end)?;
        self.wait()?;
        let about = end.since(&begin)?;
        let count = (ENOUGH.as_nanos() / about.as_nanos().max(1)).clamp(1, MOST) as u32;
        let capture = Capture::begin(self)?;
        capture.record(&begin)?;
        for _ in 0..count {
            work(capture.stream())?;
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
