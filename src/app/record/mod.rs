//! Recording: the running Lapwing's side. `lapwing record`, which asks for it, is in `lapwing_console::record`.
//!
//! A recording is a second tap on the data plane, with its own queue and budget, and a thread that exists only while it runs. It
//! waits for the accounts of its requests, which the aggregator sends, and hands lines to the admin server. Whatever has no room is
//! dropped and counted; requests and shadow targets never wait for it.

mod entry;
mod recorder;

pub(crate) use recorder::{RecordAccounts, Recorder};
