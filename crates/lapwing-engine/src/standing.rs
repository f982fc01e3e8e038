//! Where a model runs now, and why not where it was asked to run first. A model that was put on the processor stays there.

use std::fmt;
use std::sync::Arc;

/// Where a model runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// `cpu`, or `cuda:0` and so on.
    pub device: String,
    /// The GPU's name, as its driver says it; `None` on the processor.
    pub device_name: Option<String>,
    /// In what numbers it multiplies there: `fp32`, `tf32`, `fp16` or `int8`.
    pub precision: &'static str,
    /// Why it runs on the processor though a GPU was looked for; `None` where it runs on one, or none was looked for.
    pub fallback: Option<Fallback>,
    /// What the device reported when the model ended there: it cannot run any more. `None` while it can.
    pub fault: Option<String>,
}

impl Standing {
    /// On the processor, as was asked for.
    #[must_use]
    pub fn cpu(precision: &'static str) -> Arc<Self> {
        Arc::new(Self { device: "cpu".into(), device_name: None, precision, fallback: None, fault: None })
    }
}

/// Why a model runs on the processor though a GPU was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Which reason of those that are counted.
    pub reason: Reason,
    /// In words: the library, the device, the node, and what about it.
    pub told: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.label(), self.told)
    }
}

/// Reasons for a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no driver, as on most machines.
    NoDriver,
    /// The driver is older than what this build needs.
    OldDriver,
    /// The driver knows no device.
    NoDevice,
    /// The device is older than what the kernels are made for.
    OldDevice,
    /// The device is a test's own, and no GPU.
    Emulated,
    /// A node of the model has no kernel.
    Node,
    /// The device has too little memory for the model.
    Memory,
    /// The device failed while the model ran.
    Device,
    /// A library of CUDA that the model needs is not there, or not as it must be.
    Library,
}

impl Reason {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::NoDriver,
        Self::OldDriver,
        Self::NoDevice,
        Self::OldDevice,
        Self::Emulated,
        Self::Node,
        Self::Memory,
        Self::Device,
        Self::Library,
    ];

    /// As metrics and answers have it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoDriver => "no_driver",
            Self::OldDriver => "old_driver",
            Self::NoDevice => "no_device",
            Self::OldDevice => "old_device",
            Self::Emulated => "emulated",
            Self::Node => "node",
            Self::Memory => "memory",
            Self::Device => "device",
            Self::Library => "library",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_label_of_its_own_and_the_documentation_has_it() {
        let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ENGINE.md")).unwrap();
        let labels: std::collections::BTreeSet<_> = Reason::ALL.map(Reason::label).into();
        assert_eq!(labels.len(), Reason::ALL.len());
        for label in labels {
            assert!(
                docs.lines().any(|line| line.starts_with(&format!("| `{label}` |"))),
                "docs/ENGINE.md has no row for {label}"
            );
        }
        let fallback = Fallback { reason: Reason::NoDriver, told: "libcuda.so.1: is not there".into() };
        assert_eq!(fallback.to_string(), "no_driver: libcuda.so.1: is not there");
    }
}
