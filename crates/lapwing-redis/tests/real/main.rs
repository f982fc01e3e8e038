//! The client against real servers of Redis, which each test starts and ends itself.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod many;
mod one;
mod outages;
mod running;
mod tls;
