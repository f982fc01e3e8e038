//! Counts the allocated memory, in bytes. The driver only reports what is free on the whole device.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes allocated now, and the peak.
#[derive(Debug, Default)]
pub(crate) struct Account {
    now: AtomicU64,
    most: AtomicU64,
}

impl Account {
    pub(crate) fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, bytes: usize) {
        self.now.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

/// The memory in use on a device and for its staging, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Device memory held by this process's engine.
    pub device_bytes: u64,
    /// The peak of `device_bytes`.
    pub device_most_bytes: u64,
    /// Pinned host memory held by it.
    pub pinned_bytes: u64,
    /// The peak of `pinned_bytes`.
    pub pinned_most_bytes: u64,
    /// Free device memory as the driver reports it; memory of other processes is not free.
    pub free_bytes: u64,
    /// Total device memory as the driver reports it.
    pub total_bytes: u64,
}
