//! What a person at a terminal asks a running Lapwing, and how it is printed: `lapwing stats`, `diagnose`, `top`, `shadow report` and
//! `record` ask its admin address ([`admin_client`]); `merge` and `compare` read what its `/hdr` wrote ([`fleet`]).
//!
//! Nothing here measures or stores anything, and names that clients chose never reach a terminal as they came ([`printable`]).
//!
//! ```
//! use lapwing_console::units::{duration, percent};
//!
//! assert_eq!(duration(12_345.0), "12.3 µs");
//! assert_eq!(percent(0.123), "12.3 %");
//! ```

#![forbid(unsafe_code)]

pub mod admin_client;
pub mod admin_token;
pub mod diagnose;
pub mod fleet;
mod inferred;
pub mod leave;
pub mod printable;
pub mod record;
pub mod shadow_report;
pub mod stats;
mod table;
#[cfg(feature = "top")]
pub mod top;
pub mod units;
