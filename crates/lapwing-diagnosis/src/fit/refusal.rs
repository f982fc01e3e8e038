//! Why nothing is inferred, and what would help.

use std::fmt;

/// Why the figures carry no fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FitRefusal {
    /// Too few requests.
    TooFewSamples {
        /// Those there are.
        samples: u64,
        /// Those that it takes.
        needed: u64,
    },
    /// All requests ask for about the same work, so what each takes and what a unit takes cannot be told apart.
    WorkDoesNotVary {
        /// The standard deviation of the work over its mean, `0..`.
        variation: f64,
    },
    /// Every request finds about as many others in flight, so what it waits cannot be told from what every request takes.
    ConcurrencyDoesNotVary {
        /// The mean number in flight at arrival, itself included.
        in_flight: f64,
    },
    /// The figures leave too much room for what the server takes for a request.
    Imprecise {
        /// Half of the interval of the mean service time, over that time.
        half_width: f64,
    },
    /// Windows vary for another reason than work and concurrency.
    Unexplained {
        /// The share of the windows' variance that the model leaves, `0..=1`.
        share: f64,
    },
    /// Too many requests took much longer or shorter than the rest explain.
    TooManyOutliers {
        /// Their share of all requests, `0..=1`.
        share: f64,
    },
}

impl FitRefusal {
    /// The name on every surface.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TooFewSamples { .. } => "too_few_samples",
            Self::WorkDoesNotVary { .. } => "work_does_not_vary",
            Self::ConcurrencyDoesNotVary { .. } => "concurrency_does_not_vary",
            Self::Imprecise { .. } => "imprecise",
            Self::Unexplained { .. } => "unexplained",
            Self::TooManyOutliers { .. } => "too_many_outliers",
        }
    }

    /// What would help.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        match self {
            Self::TooFewSamples { .. } => "wait for more requests, or ask for a longer window",
            Self::WorkDoesNotVary { .. } => {
                "send requests of different sizes for a minute, or turn on what the server reports: lapwing upstream-flags"
            }
            Self::ConcurrencyDoesNotVary { .. } => {
                "let the load vary, such as a minute with one client, or turn on what the server reports: lapwing upstream-flags"
            }
            Self::Imprecise { .. } => "wait for more requests, or turn on what the server reports: lapwing upstream-flags",
            Self::Unexplained { .. } | Self::TooManyOutliers { .. } => {
                "turn on what the server reports: lapwing upstream-flags; look at the slowest exchanges for what they share"
            }
        }
    }
}

impl fmt::Display for FitRefusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewSamples { samples, needed } => write!(to, "{samples} requests, and it takes {needed}"),
            Self::WorkDoesNotVary { variation } => {
                write!(to, "all requests ask for about the same work: its deviation is {:.0} % of its mean", variation * 100.0)
            }
            Self::ConcurrencyDoesNotVary { in_flight } => {
                write!(to, "every request finds about {in_flight:.0} in flight, so waiting looks like a fixed time")
            }
            Self::Imprecise { half_width } => {
                write!(to, "what the server takes for a request is known to {:.0} % only", half_width * 100.0)
            }
            Self::Unexplained { share } => {
                write!(to, "work and concurrency leave {:.0} % of what windows differ unexplained", share * 100.0)
            }
            Self::TooManyOutliers { share } => {
                write!(to, "{:.0} % of the requests took much longer or shorter than the others explain", share * 100.0)
            }
        }
    }
}

impl std::error::Error for FitRefusal {}
