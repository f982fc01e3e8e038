//! Quantities as text: durations, sizes, shares and addresses. Also faults, which name path, value and reason.
//!
//! Every type parses from text (or, in a configuration file, from a number) and prints its canonical text, which parses to
//! the same value. Nothing here does I/O, knows any module's settings, or shows a secret.
//!
//! ```
//! use lapwing_settings::{Checks, Period, Size};
//!
//! let timeout: Period = "1m30s".parse().unwrap();
//! assert_eq!((timeout.as_nanos(), timeout.to_string().as_str()), (90_000_000_000, "90s"));
//! assert_eq!("64KiB".parse::<Size>().unwrap().get(), 65_536);
//! assert!("30".parse::<Period>().is_err(), "no unit");
//!
//! let mut checks = Checks::new(Default::default());
//! checks.section("proxy", |checks| checks.range("workers", &0, 1..=64));
//! assert_eq!(checks.into_faults()[0].to_string(), "proxy.workers: 0: must be between 1 and 64");
//! ```

#![forbid(unsafe_code)]

mod absolute;
mod admin_token;
mod bind;
mod checks;
mod collector;
mod cpus;
mod downstream_address;
mod even_draw;
mod fault;
mod field_name;
mod file;
mod handle;
mod lever;
mod number;
mod period;
mod poll;
mod ratio;
mod redis_address;
mod redis_deadline;
mod secret;
mod section;
mod shadow_target;
mod share;
mod size;
mod slots;
mod split_key;
mod switch;
mod text;
mod tls;
mod toggle;
mod trace_contexts;
mod trace_sampler;
mod upstream;
mod work_range;

pub use absolute::AbsoluteTolerance;
pub use admin_token::{AdminToken, AdminTokenFor};
pub use bind::Bind;
pub use checks::{Checks, ValueRange};
pub use collector::{Collector, CollectorEndpoint};
pub use cpus::Cpus;
pub use downstream_address::{DownstreamAddress, DownstreamScheme};
pub use even_draw::EvenDraw;
pub use fault::{Fault, Invalid};
pub use field_name::FieldName;
pub use file::{File, Folder};
pub use handle::{ConfigCell, ConfigHandle};
pub use lever::{LeverPosition, LeverSwitch};
pub use period::Period;
pub use poll::Poll;
pub use ratio::Ratio;
pub use redis_address::RedisAddress;
pub use redis_deadline::RedisDeadline;
pub use secret::Secret;
#[cfg(any(test, feature = "testing"))]
pub use section::fields_of;
pub use section::{Form, Record, Section};
pub use shadow_target::ShadowTarget;
pub use share::Share;
pub use size::Size;
pub use slots::Slots;
pub use split_key::SplitKey;
pub use switch::Switch;
pub use tls::{CLIENT_TLS, ClientTls, SERVER_TLS, ServerTls, Tls};
pub use toggle::Toggle;
pub use trace_contexts::{ContextKind, ContextSet, TraceContexts};
pub use trace_sampler::{RootSampler, TraceSampler};
pub use upstream::{HttpScheme, Upstream};
pub use work_range::WorkRange;

#[cfg(test)]
mod tests;
