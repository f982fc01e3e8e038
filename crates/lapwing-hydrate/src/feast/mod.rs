//! Feast: its layout in Redis, and its feature server.

mod key;
mod murmur;
mod server;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use key::{FeastKeys, field, time_field};
pub(crate) use server::{ask, read};
pub(crate) use value::{numbers, unix_seconds};
