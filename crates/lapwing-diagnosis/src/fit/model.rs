//! The model of an upstream window: what a request's own work takes, and what it waits for those ahead of it.

/// A server with `slots` places that takes requests in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Model {
    /// What every request takes, in nanoseconds.
    pub(crate) fixed: f64,
    /// What each unit of its work takes, in nanoseconds.
    pub(crate) per_unit: f64,
    /// What each request ahead, beyond the slots, adds to the wait, in nanoseconds; zero without waiting.
    pub(crate) per_ahead: f64,
    /// What waiting at all adds, in nanoseconds: the shape of the wait of the first few is known only roughly.
    pub(crate) first: f64,
    /// How many requests the server works on at once; zero if no waiting was seen.
    pub(crate) slots: u32,
    /// The squared coefficient of variation of the service time, over all requests.
    pub(crate) service_variation: f64,
    /// The variance of a service time over the square of its mean, for given work.
    pub(crate) noise: f64,
    /// The variance of the wait, over the number to wait for and the square of `per_ahead`.
    pub(crate) wait_noise: f64,
}

impl Model {
    /// The mean service time of a request that asks for `work` units, in nanoseconds; at least a nanosecond.
    pub(crate) fn service(&self, work: f64) -> f64 {
        (self.fixed + self.per_unit * work).max(1.0)
    }

    /// How many departures a request waits for that finds `in_flight`, itself included.
    pub(crate) fn departures(&self, in_flight: f64) -> f64 {
        if self.slots == 0 { 0.0 } else { (in_flight - f64::from(self.slots)).max(0.0) }
    }

    /// The mean wait of a request that finds `in_flight`, itself included, in nanoseconds.
    pub(crate) fn wait(&self, in_flight: f64) -> f64 {
        let departures = self.departures(in_flight);
        if departures <= 0.0 {
            return 0.0;
        }
        (self.per_ahead * wait_shape(departures, self.slots, self.service_variation)
            + self.first * (departures - 1.0).clamp(0.0, 1.0))
        .max(0.0)
    }

    /// The variance of a window, in square nanoseconds.
    pub(crate) fn variance(&self, work: f64, in_flight: f64) -> f64 {
        self.service_variance(work) + self.wait_variance(in_flight)
    }

    pub(crate) fn service_variance(&self, work: f64) -> f64 {
        let service = self.service(work);
        (self.noise * service * service).max(1.0)
    }

    pub(crate) fn wait_variance(&self, in_flight: f64) -> f64 {
        self.wait_noise * self.departures(in_flight) * self.per_ahead * self.per_ahead
    }
}

/// The mean time until `departures` requests have left a busy server of `slots`, in units of the mean time between two departures.
///
/// In the long run each departure takes one such unit, and the whole is shorter by (1 − c²)/2, because the services ahead have
/// begun already (renewal theory: the mean residual life of an interval is (1 + c²)/2 of its mean; Cox, Renewal Theory, 1962, §4.2).
/// The first departure is the earliest of `slots` residual lives, which lies between s/(s + 1) for constant service times
/// and 1 for exponential ones. Between the two the offset is interpolated.
pub(crate) fn wait_shape(departures: f64, slots: u32, service_variation: f64) -> f64 {
    let slots = f64::from(slots.max(1));
    let spread = 1.0 - service_variation.clamp(0.0, 1.5);
    let (first, last) = (spread / (slots + 1.0), spread / 2.0);
    let progress = ((departures - 1.0) / slots).clamp(0.0, 1.0);
    (departures - first - (last - first) * progress).max(0.0)
}
