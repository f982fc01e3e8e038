//! Tests of the device layer: without a driver, with unusable drivers, and with one that runs kernels on the host.
//! Each test case runs in a process of its own ([`lapwing_testing::alone`]).

mod absent;
mod emulated;
mod listed;
mod products;
