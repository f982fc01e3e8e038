//! How busy the machine's processors are, as the kernel counts it: the time that a hypervisor took away (steal), and the time in which some
//! process waited for a processor (pressure). A neighbour on the processors makes every stage longer, so a verdict is less sure then.
//!
//! - `reading` reads /proc; `timeline` keeps what it says by the same blocks of time as the exchanges.
//!
//! The diagnosis' timer reads it every two seconds, never for a request. Both files together take some 50 µs.

mod reading;
mod timeline;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use reading::HostReading;
pub(crate) use timeline::HostTimeline;

/// How busy the processors were. Shares of all processors' time, `0..=1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostLoad {
    /// The share that was not idle, whatever process used it.
    pub busy_share: f64,
    /// The share that the hypervisor gave to others meanwhile.
    pub steal_share: f64,
    /// The share of the time in which at least one process waited for a processor; `None` where the kernel does not say it.
    pub pressure_share: Option<f64>,
}
