//! Where a model runs now, and why it fell back to the CPU. A model that fell back stays on the CPU.

use std::fmt;
use std::sync::Arc;

/// Where a model runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// `cpu`, or `cuda:0` and so on.
    pub device: String,
    /// The GPU's name as its driver gives it, or of ONNX Runtime the execution provider's; `None` on the CPU.
    pub device_name: Option<String>,
    /// The number format of its products there: `fp32`, `tf32`, `fp16` or `int8`.
    pub precision: &'static str,
    /// Why it runs on the CPU although a GPU was requested; `None` if it runs on a GPU, or none was requested.
    pub fallback: Option<Fallback>,
    /// The device error that ended the model: it cannot run any more. `None` while it can.
    pub fault: Option<String>,
}

impl Placement {
    /// The CPU, with no GPU requested.
    #[must_use]
    pub fn cpu(precision: &'static str) -> Arc<Self> {
        Arc::new(Self::on_cpu(precision, None))
    }

    /// The CPU; with the reason, if a GPU was looked for.
    #[must_use]
    pub fn on_cpu(precision: &'static str, fallback: Option<Fallback>) -> Self {
        Self { device: "cpu".into(), device_name: None, precision, fallback, fault: None }
    }
}

/// What runs the nodes of a model in ONNX Runtime. Those that a GPU's provider does not take run on the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrtProvider {
    /// The CPU.
    #[default]
    Cpu,
    /// CUDA, on the GPU with this number.
    Cuda(u8),
    /// TensorRT, on the GPU with this number; CUDA runs what it does not take.
    TensorRt(u8),
}

impl OrtProvider {
    /// Its name in ONNX Runtime (`GetAvailableProviders` of onnxruntime_c_api.h).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPUExecutionProvider",
            Self::Cuda(_) => "CUDAExecutionProvider",
            Self::TensorRt(_) => "TensorrtExecutionProvider",
        }
    }
}

/// Why a model runs on the CPU although a GPU was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The cause, as metrics count it.
    pub cause: FallbackCause,
    /// In words: the library, the device or the node, and what is wrong with it.
    pub detail: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause.label(), self.detail)
    }
}

/// FallbackCauses for a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallbackCause {
    /// The machine has no driver.
    NoDriver,
    /// The driver is older than this build needs.
    OldDriver,
    /// The driver has no device.
    NoDevice,
    /// The device is older than the kernels need.
    OldDevice,
    /// The device is the tests' emulated one.
    Emulated,
    /// A node of the model has no kernel.
    Node,
    /// The device has too little memory for the model.
    Memory,
    /// The device failed while the model ran.
    Device,
    /// A CUDA library that the model needs is missing or unusable.
    Library,
}

impl FallbackCause {
    /// Every cause.
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

    /// The label in metrics and answers.
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
    fn every_cause_has_a_label_of_its_own_and_the_documentation_has_it() {
        let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ENGINE.md")).unwrap();
        let labels: std::collections::BTreeSet<_> = FallbackCause::ALL.map(FallbackCause::label).into();
        assert_eq!(labels.len(), FallbackCause::ALL.len());
        for label in labels {
            assert!(
                docs.lines().any(|line| line.starts_with(&format!("| `{label}` |"))),
                "docs/ENGINE.md has no row for {label}"
            );
        }
        let fallback = Fallback { cause: FallbackCause::NoDriver, detail: "libcuda.so.1: is not there".into() };
        assert_eq!(fallback.to_string(), "no_driver: libcuda.so.1: is not there");
    }
}
