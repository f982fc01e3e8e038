//! The whole data plane, under a seeded scheduler.

// fuzz targets drive it too
pub mod proxy_properties;
#[cfg(test)]
mod wakeups;
