//! How much memory is allocated: counted here, in bytes, since the driver only tells what is left on the whole device.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes allocated now, and the most that ever were.
#[derive(Debug, Default)]
pub(super) struct Account {
    now: AtomicU64,
    most: AtomicU64,
}

impl Account {
    pub(super) fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.now.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

/// The memory of a device and of its staging, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Device memory that this process' engine holds.
    pub device_bytes: u64,
    /// The most device memory that it ever held.
    pub device_most_bytes: u64,
    /// Pinned host memory that it holds.
    pub pinned_bytes: u64,
    /// The most pinned host memory that it ever held.
    pub pinned_most_bytes: u64,
    /// What is free on the device, by the driver: other processes' memory is not.
    pub free_bytes: u64,
    /// The device's memory, by the driver.
    pub total_bytes: u64,
}
