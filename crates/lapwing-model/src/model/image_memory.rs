//! Memory that the runs of a thread leave to one another, for images between convolutions.

/// Memory of a thread that computes blocks.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) product: Vec<f32>,
    pub(crate) block: Vec<f32>,
    pub(crate) program: Vec<f32>,
}

/// The memory of runs, one after the other.
#[derive(Debug, Default)]
pub(crate) struct ImageMemory {
    pub(crate) buffers: Buffers,
    pub(crate) scratch: Scratch,
}

/// Memory that images leave to others.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Vec<Vec<f32>>);

impl Buffers {
    /// `len` elements, with any values.
    pub(crate) fn take(&mut self, len: usize) -> Result<Vec<f32>, String> {
        let fits = self.0.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= len);
        let best = fits.min_by_key(|(_, buffer)| buffer.capacity()).map(|(at, _)| at);
        let mut buffer = best.map(|at| self.0.swap_remove(at)).unwrap_or_default();
        let more = len.saturating_sub(buffer.len());
        buffer.try_reserve_exact(more).map_err(|_| format!("an image of {len} numbers does not fit the memory"))?;
        buffer.resize(len, 0.0);
        Ok(buffer)
    }

    /// Gives memory back.
    pub(crate) fn give(&mut self, buffer: Vec<f32>) {
        /// More than that, no network of known ones has at once.
        const MOST: usize = 32;
        if self.0.len() < MOST {
            self.0.push(buffer);
        }
    }
}
