//! Weighted means and centred second moments of work and window, of one cell. They merge by addition and never cancel.

/// What is kept of the samples of one cell. Means and moments are centred, so that nothing is lost where windows hardly differ.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    /// The sum of the samples' weights, each `0..=1`.
    pub(crate) weight: f64,
    /// The mean number in flight.
    pub(crate) in_flight: f64,
    /// The mean work, in units.
    pub(crate) work: f64,
    /// The mean window, in nanoseconds.
    pub(crate) window: f64,
    /// The sum of squared deviations of the work.
    pub(crate) work_work: f64,
    /// The sum of products of the deviations of work and window.
    pub(crate) work_window: f64,
    /// The sum of squared deviations of the window.
    pub(crate) window_window: f64,
}

impl Moments {
    /// One sample.
    pub(crate) fn of(weight: f64, in_flight: f64, work: f64, window: f64) -> Self {
        Self { weight, in_flight, work, window, ..Self::default() }
    }

    /// Adds what another cell holds (Chan, Golub and LeVeque 1979).
    pub(crate) fn merge(&mut self, other: &Self) {
        let weight = self.weight + other.weight;
        if weight <= 0.0 {
            return;
        }
        let share = other.weight / weight;
        let (work, window) = (other.work - self.work, other.window - self.window);
        let cross = self.weight * share;
        self.work_work += other.work_work + work * work * cross;
        self.work_window += other.work_window + work * window * cross;
        self.window_window += other.window_window + window * window * cross;
        self.in_flight += (other.in_flight - self.in_flight) * share;
        self.work += work * share;
        self.window += window * share;
        self.weight = weight;
    }
}

/// [`Moments`] in half the memory: what is kept between folds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedMoments([f32; 7]);

impl PackedMoments {
    #[allow(clippy::cast_possible_truncation, reason = "seven digits are enough for a centred moment")]
    pub(crate) fn pack(moments: &Moments) -> Self {
        Self(
            [
                moments.weight,
                moments.in_flight,
                moments.work,
                moments.window,
                moments.work_work,
                moments.work_window,
                moments.window_window,
            ]
            .map(|value| value.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32),
        )
    }

    pub(crate) fn unpack(self) -> Moments {
        let [weight, in_flight, work, window, work_work, work_window, window_window] = self.0.map(f64::from);
        Moments { weight, in_flight, work, window, work_work, work_window, window_window }
    }
}
