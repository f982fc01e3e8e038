//! Tests of the device layer: with no driver, with drivers that cannot be used, and with one that runs kernels on the host.
//! Each situation runs in a process of its own ([`lapwing_testing::alone`]).

mod absent;
mod emulated;
mod listed;
mod products;
