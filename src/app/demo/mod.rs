//! demo
mod client;
mod data;
mod exporter;
mod features;
mod oip;
mod pipeline;
mod server;
mod spans;
pub use server::{ServerHandle, start_server};
