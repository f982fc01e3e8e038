//! The section `cost`: the optimum that a model's forward is compared with, and devices that are not known by name.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bench::BenchFile;
use super::device::{DevicePeaks, KnownDevice, NumberFormat};
use lapwing_ledger::Unit;
use lapwing_settings::{Checks, File, Form, Record, Section, Size};

/// How many models may have an optimum.
const MAX_MODELS: usize = 256;
/// The longest name of a device and of a source.
const MAX_TEXT: usize = 200;

/// The optimum of a model.
const MODEL: Record = Record {
    what: "a section with engine, or bench, or ns_per_unit, unit and source, or device, format and what the model asks of it",
    keys: &[
        ("engine", Form::Literal),
        ("bench", Form::Text),
        ("fixed_ns", Form::Number),
        ("ns_per_unit", Form::Number),
        ("source", Form::Literal),
        ("device", Form::Literal),
        ("format", Form::Text),
        ("onnx", Form::Text),
        ("flops_per_unit", Form::Number),
        ("weights", Form::Text),
        ("bytes_per_unit", Form::Number),
        ("unit", Form::Text),
    ],
    stand_in: &[],
};

/// The peaks of a device.
const DEVICE: Record = Record {
    what: "a section with bytes_per_s, and operations a second by number format: fp32, tf32, bf16, fp16, fp8, int8",
    keys: &[
        ("bytes_per_s", Form::Number),
        ("fp32", Form::Number),
        ("tf32", Form::Number),
        ("bf16", Form::Number),
        ("fp16", Form::Number),
        ("fp8", Form::Number),
        ("int8", Form::Number),
    ],
    stand_in: &[],
};

/// The section `cost`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// The optimum of each model, by its name, at most 256; `*` is every other model, and requests that name none. Exactly one of
    /// `engine`, `bench`, `ns_per_unit` and `device`. Files are read at the start.
    pub models: BTreeMap<String, ModelCost>,
    /// Peaks of devices that docs/DEBT.md does not list, or other figures for them, by name.
    pub devices: BTreeMap<String, DeclaredDevice>,
}

/// The optimum of a model: exactly one of `engine`, `bench`, `ns_per_unit` and `device`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "optimum")]
pub struct ModelCost {
    /// The name of a model of the section `engine`: what its warm-up measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// A file of `lapwing engine bench --json` with at least two batch sizes, at most 16 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bench: Option<File>,
    /// The time of any forward pass, with `ns_per_unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_ns: Option<f64>,
    /// The time that each `unit` adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_unit: Option<f64>,
    /// Where these times come from, in words; at most 200 bytes. Required with `ns_per_unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The device whose roofline is the optimum. Needs `format`, and `onnx` or `unit`, `flops_per_unit` and `weights`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The format of the model's numbers on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<NumberFormat>,
    /// The model, whose plan says what it asks of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onnx: Option<File>,
    /// Floating-point operations of each `unit`; a multiply-add is two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops_per_unit: Option<f64>,
    /// Bytes of the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Size>,
    /// Bytes that each `unit` moves in addition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_unit: Option<f64>,
    /// The unit of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
}

/// A device: bytes a second of its memory, and operations a second by number format; 0 where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "device")]
pub struct DeclaredDevice {
    /// Bytes a second of its memory.
    pub bytes_per_s: f64,
    /// Operations a second in single precision.
    pub fp32: f64,
    /// With 10 fraction bits.
    pub tf32: f64,
    /// In `bfloat16`.
    pub bf16: f64,
    /// In half precision.
    pub fp16: f64,
    /// In 8-bit floating point.
    pub fp8: f64,
    /// In 8-bit integers.
    pub int8: f64,
}

impl DeclaredDevice {
    /// Its peaks.
    #[must_use]
    pub const fn peaks(&self) -> DevicePeaks {
        let Self { bytes_per_s, fp32, tf32, bf16, fp16, fp8, int8 } = *self;
        DevicePeaks { flops_per_s: [fp32, tf32, bf16, fp16, fp8, int8], bytes_per_s }
    }
}

impl Config {
    /// A device of the section, or one that is known by name; with the name that figures state.
    #[must_use]
    pub fn device(&self, name: &str) -> Option<(String, DevicePeaks)> {
        let declared = self.devices.get(name).map(|device| (name.to_owned(), device.peaks()));
        declared.or_else(|| KnownDevice::find(name).map(|known| (known.name.to_owned(), known.peaks)))
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] =
        &[("models", Form::Named(&Form::Record(&MODEL))), ("devices", Form::Named(&Form::Record(&DEVICE)))];

    fn check(&self, checks: &mut Checks) {
        if self.models.len() > MAX_MODELS {
            checks.fault("models", self.models.len(), format!("are more than {MAX_MODELS}"));
        }
        for (name, device) in &self.devices {
            let at = |key: &str| format!("devices.{name}.{key}");
            let DevicePeaks { flops_per_s, bytes_per_s } = device.peaks();
            checks.range(&at("bytes_per_s"), &bytes_per_s, 1.0..=1e15);
            for (format, rate) in NumberFormat::ALL.into_iter().zip(flops_per_s) {
                checks.range(&at(format.name()), &rate, 0.0..=1e18);
            }
            if name.is_empty() || name.len() > MAX_TEXT {
                checks.fault(&format!("devices.{name}"), name, format!("must have a name of at most {MAX_TEXT} bytes"));
            } else if device.peaks().formats().next().is_none() {
                checks.fault(&format!("devices.{name}"), "", "needs operations a second in at least one number format");
            }
        }
        for (name, model) in &self.models {
            model.check(self, &format!("models.{name}"), checks);
        }
    }
}

impl ModelCost {
    fn check(&self, section: &Config, path: &str, checks: &mut Checks) {
        let at = |key: &str| format!("{path}.{key}");
        let kinds = [self.engine.is_some(), self.bench.is_some(), self.ns_per_unit.is_some(), self.device.is_some()];
        let is_one = kinds.into_iter().filter(|is_given| *is_given).count() == 1;
        if !is_one {
            checks.fault(path, "", "needs exactly one of engine, bench, ns_per_unit, device");
        }
        for (key, value, low, high) in [
            ("fixed_ns", self.fixed_ns, 0.0, 1e12),
            ("ns_per_unit", self.ns_per_unit, 0.0, 1e12),
            ("flops_per_unit", self.flops_per_unit, 1e-3, 1e18),
            ("bytes_per_unit", self.bytes_per_unit, 0.0, 1e15),
        ] {
            checks.optional_range(&at(key), value.as_ref(), low..=high);
        }
        if !is_one {
            return;
        }
        let given = [
            ("fixed_ns", self.fixed_ns.is_some()),
            ("source", self.source.is_some()),
            ("format", self.format.is_some()),
            ("onnx", self.onnx.is_some()),
            ("flops_per_unit", self.flops_per_unit.is_some()),
            ("weights", self.weights.is_some()),
            ("bytes_per_unit", self.bytes_per_unit.is_some()),
            ("unit", self.unit.is_some()),
        ];
        let (of, allowed, required): (_, &[&str], &[&str]) = match (&self.bench, &self.device, &self.onnx) {
            _ if self.engine.is_some() => ("engine", &[], &[]),
            (Some(_), ..) => ("bench", &[], &[]),
            (_, Some(_), Some(_)) => ("onnx", &["format", "onnx"], &["format"]),
            (_, Some(_), None) => {
                let demand = &["format", "flops_per_unit", "weights", "bytes_per_unit", "unit"];
                ("device", demand, &["format", "flops_per_unit", "weights", "unit"])
            }
            _ => ("ns_per_unit", &["fixed_ns", "source", "unit"], &["source", "unit"]),
        };
        for (key, is_given) in given {
            if is_given && !allowed.contains(&key) {
                checks.fault(&at(key), "", format!("has no effect beside {of}"));
            } else if !is_given && required.contains(&key) {
                checks.fault(path, "", format!("needs {key} beside {of}"));
            }
        }
        self.check_values(section, path, checks);
    }

    fn check_values(&self, section: &Config, path: &str, checks: &mut Checks) {
        let at = |key: &str| format!("{path}.{key}");
        if let Some(file) = &self.bench
            && let Err(error) = BenchFile::read(file.path())
        {
            checks.fault(&at("bench"), file, error.to_string());
        }
        if let Some(file) = self.onnx.as_ref().filter(|file| !file.path().is_file()) {
            checks.fault(&at("onnx"), file, "is not a readable file");
        }
        if self.ns_per_unit == Some(0.0) && self.fixed_ns.unwrap_or_default() == 0.0 {
            checks.fault(&at("ns_per_unit"), 0, "must be above zero, or fixed_ns must be");
        }
        if let Some(source) = self.source.as_ref().filter(|source| source.trim().is_empty() || source.len() > MAX_TEXT) {
            checks.fault(&at("source"), source, format!("must be a text of at most {MAX_TEXT} bytes"));
        }
        let Some(device) = &self.device else { return };
        match (section.device(device), self.format) {
            (None, _) => {
                let known: Vec<_> = super::DEVICES.iter().map(|known| known.name).collect();
                let reason = format!("is not in cost.devices, and not one of {}", known.join(", "));
                checks.fault(&at("device"), device, reason);
            }
            (Some((name, peaks)), Some(format)) if peaks.in_format(format).is_none() => {
                let formats: Vec<_> = peaks.formats().map(NumberFormat::name).collect();
                checks.fault(&at("format"), format.name(), format!("is none of {name}, which has {}", formats.join(", ")));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_models_and_devices_are_their_fields() {
        MODEL.assert_describes::<ModelCost>();
        DEVICE.assert_describes::<DeclaredDevice>();
    }

    fn faults(json: serde_json::Value) -> Vec<String> {
        let config: Config = serde_json::from_value(json).unwrap();
        let mut checks = Checks::default();
        config.check(&mut checks);
        checks.into_faults().iter().map(|fault| format!("{}: {}", fault.path, fault.reason)).collect()
    }

    #[test]
    fn a_model_has_one_optimum_and_all_that_it_needs() {
        let told = faults(serde_json::json!({"models": {
            "line": {"ns_per_unit": 2.5, "fixed_ns": 100, "unit": "row", "source": "measured by hand"},
            "known": {"device": "a10", "format": "fp16", "flops_per_unit": 2.4e6, "weights": "12MB", "unit": "input_token"},
            "own": {"device": "mine", "format": "fp32", "flops_per_unit": 1.0, "weights": 1, "unit": "element"},
        }, "devices": {"mine": {"bytes_per_s": 2e10, "fp32": 1e12}}}));
        assert_eq!(told, [""; 0]);
        let told = faults(serde_json::json!({"models": {
            "a": {}, "b": {"ns_per_unit": 1, "device": "t4"}, "c": {"ns_per_unit": 0, "unit": "row", "source": " "},
            "d": {"device": "t5", "format": "fp16", "onnx": "/nowhere.onnx", "unit": "row"},
            "e": {"device": "t4", "format": "tf32", "flops_per_unit": 0},
            "f": {"bench": "/nowhere.jsonl", "format": "fp16"}, "g": {"engine": "m", "unit": "row"},
        }, "devices": {"none": {"bytes_per_s": 0}, "slow": {"bytes_per_s": 1e9}}}));
        for (at, text) in [
            ("devices.none.bytes_per_s", "must be between 1 and"),
            ("devices.slow", "at least one number format"),
            ("models.a", "exactly one of engine, bench, ns_per_unit, device"),
            ("models.b", "exactly one of"),
            ("models.c.ns_per_unit", "must be above zero"),
            ("models.c.source", "at most 200 bytes"),
            ("models.d.unit", "has no effect beside onnx"),
            ("models.d.onnx", "not a readable file"),
            ("models.d.device", "not one of Tesla V100-PCIE-16GB, "),
            ("models.e.flops_per_unit", "must be between 0.001 and"),
            ("models.e.format", "is none of Tesla T4, which has fp32, fp16, int8"),
            ("models.f.format", "has no effect beside bench"),
            ("models.f.bench", "cannot be read"),
            ("models.g.unit", "has no effect beside engine"),
        ] {
            assert!(told.iter().any(|fault| fault.starts_with(&format!("{at}: ")) && fault.contains(text)), "{at}: {told:#?}");
        }
    }
}
