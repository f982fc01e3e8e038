//! Recording: the running Lapwing's side (`recorder`, `entry`), and `lapwing record`, its client (`client`).
//!
//! A recording is a second tap on the data plane, with its own queue and budget, and a thread that exists only while it runs. It
//! waits for the accounts of its requests, which the aggregator sends, and hands lines to the admin server. Whatever has no room is
//! dropped and counted; requests and shadow targets never wait for it.

mod client;
mod entry;
mod recorder;

pub(crate) use client::RecordArgs;
pub(crate) use client::run;
pub(crate) use recorder::{RecordAccounts, Recorder};
