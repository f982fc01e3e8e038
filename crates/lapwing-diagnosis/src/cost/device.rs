//! Peak rates of devices: those of common GPUs by name, from their vendor's documents. Dense rates, without structured sparsity.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The number format of a model's products, and of its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NumberFormat {
    /// Single precision, on the ordinary cores.
    Fp32,
    /// Single precision with 10 fraction bits in products; stored as `fp32`.
    Tf32,
    /// `bfloat16`.
    Bf16,
    /// Half precision.
    Fp16,
    /// 8-bit floating point.
    Fp8,
    /// 8-bit integers.
    Int8,
}

impl NumberFormat {
    /// Every format.
    pub const ALL: [Self; 6] = [Self::Fp32, Self::Tf32, Self::Bf16, Self::Fp16, Self::Fp8, Self::Int8];

    /// The name in the configuration and in the names of optima.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
        }
    }

    /// The bytes of a stored number.
    #[must_use]
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Fp32 | Self::Tf32 => 4.0,
            Self::Bf16 | Self::Fp16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
        }
    }
}

/// The peak rates of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DevicePeaks {
    /// Operations a second in each [`NumberFormat`]; zero where the device has no such operations.
    pub flops_per_s: [f64; 6],
    /// Bytes a second that its memory delivers.
    pub bytes_per_s: f64,
}

impl DevicePeaks {
    /// Operations a second in `format`; `None` where the device has no such operations.
    #[must_use]
    pub fn in_format(&self, format: NumberFormat) -> Option<f64> {
        Some(self.flops_per_s[format as usize]).filter(|rate| *rate > 0.0)
    }

    /// The formats that it computes in.
    pub fn formats(&self) -> impl Iterator<Item = NumberFormat> {
        NumberFormat::ALL.into_iter().filter(|format| self.in_format(*format).is_some())
    }
}

/// A GPU whose peaks are known here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownDevice {
    /// Its name as its driver gives it.
    pub name: &'static str,
    /// Its peaks.
    pub peaks: DevicePeaks,
    /// The document that states them.
    pub source: &'static str,
}

impl KnownDevice {
    /// The device of this name. Case, blanks, hyphens and a leading `NVIDIA` or `Tesla` do not matter.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let wanted = folded(name);
        DEVICES.iter().find(|device| folded(device.name) == wanted)
    }
}

fn folded(name: &str) -> String {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let plain = plain.strip_prefix("nvidia").unwrap_or(&plain);
    plain.strip_prefix("tesla").unwrap_or(plain).to_owned()
}

const AMPERE: &str = "NVIDIA A100 Tensor Core GPU datasheet, 1758950 r4";
const HOPPER: &str = "NVIDIA H100 Tensor Core GPU datasheet; dense rates by the NVIDIA H100 architecture whitepaper";
const ADA: &str = "NVIDIA L4 Tensor Core GPU datasheet; rates given with sparsity, halved";
const VOLTA: &str = "NVIDIA V100 Tensor Core GPU datasheet";

/// `[fp32, tf32, bf16, fp16, fp8, int8]` in 10¹² operations a second, and gigabytes a second.
const fn gpu(name: &'static str, tera: [f64; 6], gigabytes_per_s: f64, source: &'static str) -> KnownDevice {
    let (mut flops_per_s, mut at) = (tera, 0);
    while at < flops_per_s.len() {
        flops_per_s[at] *= 1e12;
        at += 1;
    }
    KnownDevice { name, peaks: DevicePeaks { flops_per_s, bytes_per_s: gigabytes_per_s * 1e9 }, source }
}

const A100: [f64; 6] = [19.5, 156.0, 312.0, 312.0, 0.0, 624.0];
const H100_SXM: [f64; 6] = [66.9, 494.7, 989.4, 989.4, 1_978.9, 1_978.9];

/// The GPUs that are known by name.
pub const DEVICES: &[KnownDevice] = &[
    gpu("Tesla V100-PCIE-16GB", [14.0, 0.0, 0.0, 112.0, 0.0, 0.0], 900.0, VOLTA),
    gpu("Tesla V100-SXM2-16GB", [15.7, 0.0, 0.0, 125.0, 0.0, 0.0], 900.0, VOLTA),
    gpu("Tesla V100-SXM2-32GB", [15.7, 0.0, 0.0, 125.0, 0.0, 0.0], 900.0, VOLTA),
    gpu("Tesla T4", [8.1, 0.0, 0.0, 65.0, 0.0, 130.0], 320.0, "NVIDIA Turing GPU architecture whitepaper, Tesla T4"),
    gpu("NVIDIA A10", [31.2, 62.5, 125.0, 125.0, 0.0, 250.0], 600.0, "NVIDIA A10 Tensor Core GPU datasheet"),
    gpu("NVIDIA A10G", [31.5, 35.0, 70.0, 70.0, 0.0, 140.0], 600.0, "NVIDIA A10G Tensor Core GPU datasheet"),
    gpu("NVIDIA A30", [10.3, 82.0, 165.0, 165.0, 0.0, 330.0], 933.0, "NVIDIA A30 Tensor Core GPU datasheet"),
    gpu("NVIDIA A40", [37.4, 74.8, 149.7, 149.7, 0.0, 299.3], 696.0, "NVIDIA A40 datasheet"),
    gpu("NVIDIA A100-PCIE-40GB", A100, 1_555.0, AMPERE),
    gpu("NVIDIA A100-SXM4-40GB", A100, 1_555.0, AMPERE),
    gpu("NVIDIA A100 80GB PCIe", A100, 1_935.0, AMPERE),
    gpu("NVIDIA A100-SXM4-80GB", A100, 2_039.0, AMPERE),
    gpu("NVIDIA L4", [30.3, 60.0, 121.0, 121.0, 242.5, 242.5], 300.0, ADA),
    gpu("NVIDIA L40", [90.5, 90.5, 181.0, 181.0, 362.0, 362.0], 864.0, "NVIDIA L40 datasheet"),
    gpu("NVIDIA L40S", [91.6, 183.0, 362.0, 362.0, 733.0, 733.0], 864.0, "NVIDIA L40S datasheet"),
    gpu("NVIDIA H100 PCIe", [51.2, 378.0, 756.0, 756.0, 1_513.0, 1_513.0], 2_000.0, HOPPER),
    gpu("NVIDIA H100 80GB HBM3", H100_SXM, 3_350.0, HOPPER),
    gpu("NVIDIA H100 NVL", [60.0, 417.5, 835.5, 835.5, 1_670.5, 1_670.5], 3_900.0, HOPPER),
    gpu("NVIDIA H200", H100_SXM, 4_800.0, "NVIDIA H200 Tensor Core GPU datasheet; rates given with sparsity, halved"),
];

/// A rate with three digits and its prefix, as in `312 TFLOP/s`.
pub(crate) struct Rate(pub(crate) f64, pub(crate) &'static str);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M")];
        // bandwidths of terabytes are stated in gigabytes by most documents
        let largest = if self.1.starts_with('B') { 1e9 } else { 1e12 };
        let (scale, prefix) = prefixes.into_iter().find(|(scale, _)| *scale <= largest && self.0 >= *scale).unwrap_or((1.0, ""));
        let digits = (self.0 / scale * 10.0).round() / 10.0;
        write!(f, "{digits} {prefix}{}", self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_however_they_are_written() {
        for device in DEVICES {
            assert_eq!(KnownDevice::find(device.name).map(|found| found.name), Some(device.name));
            assert!(!device.source.is_empty());
        }
        let found = |name| KnownDevice::find(name).map(|device| device.name);
        assert_eq!(found("a100-sxm4-80gb"), Some("NVIDIA A100-SXM4-80GB"));
        assert_eq!((found("t4"), found("nvidia l4"), found("v100")), (Some("Tesla T4"), Some("NVIDIA L4"), None));
    }

    #[test]
    fn the_document_has_every_device() {
        let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/DEBT.md")).unwrap();
        for KnownDevice { name, peaks, source } in DEVICES {
            let cell = |scale: f64, rate: f64| {
                if rate > 0.0 { ((rate / scale * 10.0).round() / 10.0).to_string() } else { String::new() }
            };
            let rates = peaks.flops_per_s.map(|rate| cell(1e12, rate)).join(" | ");
            let row = format!("| `{name}` | {rates} | {} | {source} |", cell(1e9, peaks.bytes_per_s));
            assert!(docs.lines().any(|line| line == row), "docs/DEBT.md lacks {row}");
        }
        assert_eq!(
            docs.lines().filter(|line| line.starts_with("| `NVIDIA ") || line.starts_with("| `Tesla ")).count(),
            DEVICES.len()
        );
    }

    #[test]
    fn narrower_formats_are_no_slower() {
        for DevicePeaks { flops_per_s: [fp32, tf32, bf16, fp16, fp8, int8], bytes_per_s } in DEVICES.iter().map(|d| d.peaks) {
            assert!(fp32 > 1e12 && fp16 > fp32 && (tf32 == 0.0 || tf32 >= fp32), "{fp32}");
            assert!(bf16 == 0.0 || bf16 == fp16);
            assert!([fp8, int8].into_iter().all(|rate| rate == 0.0 || rate >= 1.9 * fp16), "{fp16}");
            assert!((1e11..1e13).contains(&bytes_per_s));
        }
    }

    #[test]
    fn formats_are_numbered_in_order_and_rates_are_readable() {
        assert!(NumberFormat::ALL.iter().enumerate().all(|(at, format)| *format as usize == at));
        let t4 = KnownDevice::find("T4").unwrap().peaks;
        assert_eq!(t4.formats().collect::<Vec<_>>(), [NumberFormat::Fp32, NumberFormat::Fp16, NumberFormat::Int8]);
        let text = |rate: f64, unit| Rate(rate, unit).to_string();
        assert_eq!([text(312e12, "FLOP/s"), text(1978.9e12, "FLOP/s")], ["312 TFLOP/s", "1978.9 TFLOP/s"]);
        assert_eq!([text(2039e9, "B/s"), text(62.5e9, "FLOP/s")], ["2039 GB/s", "62.5 GFLOP/s"]);
    }
}
