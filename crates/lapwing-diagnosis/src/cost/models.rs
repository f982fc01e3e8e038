//! The optima of all models, made from the section `cost` once, at the start.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::bench::{BenchError, BenchFile};
use super::config::{Config, ModelCost};
use super::demand::ModelDemand;
use super::device::Rate;
use super::line::CostLine;
use super::optimum::{MemoryTraffic, OptimalTime, Optimum};

/// Means every model without an entry.
const REST: &str = "*";

/// Why a model's optimum cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CostError {
    /// Its calibration.
    #[error("cost.models.{model}.bench: {path}: {cause}")]
    Bench {
        /// The model.
        model: String,
        /// The file.
        path: String,
        /// What is wrong.
        cause: BenchError,
    },
    /// What its plan asks of a device.
    #[error("cost.models.{model}.onnx: {path}: {cause}")]
    Plan {
        /// The model.
        model: String,
        /// The file.
        path: String,
        /// What is wrong.
        cause: String,
    },
    /// Settings that [`Section::check`](lapwing_settings::Section::check) would have refused.
    #[error("cost.models.{model}: is not a complete optimum")]
    Incomplete {
        /// The model.
        model: String,
    },
}

/// Returns the optimum of a model that this process serves itself, by its name; `None` until it is warm.
pub type HostedOptimum = Arc<dyn Fn(&str) -> Option<Optimum> + Send + Sync>;

/// Returns the optimum of one model that this process serves; `None` until it is warm.
pub type WarmOptimum = Box<dyn Fn() -> Option<Optimum> + Send + Sync>;

/// The optimum of each model that has one.
#[derive(Default)]
pub struct ModelOptima {
    models: BTreeMap<String, DeclaredOptimum>,
    hosted: Option<HostedOptimum>,
    engines: Vec<TargetEngine>,
}

/// A model that the engine runs as a shadow target: the optimum of the upstream's model, where both are the same.
pub struct TargetEngine {
    target: usize,
    known: OnceLock<Arc<Optimum>>,
    warm: WarmOptimum,
}

impl TargetEngine {
    /// The model of the target with this index.
    #[must_use]
    pub const fn new(target: usize, warm: WarmOptimum) -> Self {
        Self { target, known: OnceLock::new(), warm }
    }

    /// The target's index.
    #[must_use]
    pub const fn target(&self) -> usize {
        self.target
    }

    /// Its optimum; `None` until it is warm.
    #[must_use]
    pub fn optimum(&self) -> Option<&Arc<Optimum>> {
        if let Some(optimum) = self.known.get() {
            return Some(optimum);
        }
        let optimum = Arc::new((self.warm)()?);
        Some(self.known.get_or_init(|| optimum))
    }
}

/// An optimum that is known, or that a served model has as soon as it is warm.
#[derive(Debug)]
struct DeclaredOptimum {
    known: OnceLock<Arc<Optimum>>,
    /// The name of the served model.
    engine: Option<String>,
}

impl ModelOptima {
    /// Makes the optima of a checked section, and reads the files that it names. `plan` returns what an ONNX model's plan asks of a
    /// device with numbers of four bytes, or why it has none; `hosted` is asked for models that this process serves itself.
    ///
    /// # Errors
    ///
    /// [`CostError`] names the model, the file and the reason.
    pub fn new(
        config: &Config,
        plan: impl Fn(&Path) -> Result<ModelDemand, String>,
        hosted: HostedOptimum,
    ) -> Result<Self, CostError> {
        let declared = |(name, model): (&String, &ModelCost)| {
            let known = match model.engine {
                Some(_) => OnceLock::new(),
                None => OnceLock::from(Arc::new(make(config, name, model, &plan)?)),
            };
            Ok((name.clone(), DeclaredOptimum { known, engine: model.engine.clone() }))
        };
        let models = config.models.iter().map(declared).collect::<Result<_, _>>()?;
        Ok(Self { models, hosted: Some(hosted), engines: Vec::new() })
    }

    /// With the models that the engine runs as shadow targets.
    #[must_use]
    pub fn with_engines(self, engines: Vec<TargetEngine>) -> Self {
        Self { engines, ..self }
    }

    /// The models that the engine runs as shadow targets.
    #[must_use]
    pub fn engines(&self) -> &[TargetEngine] {
        &self.engines
    }

    /// The optimum of this name that figures of the model are relative to.
    #[must_use]
    pub fn named(&self, model: &str, name: &str) -> Option<&Arc<Optimum>> {
        let engines = self.engines.iter().filter_map(TargetEngine::optimum);
        self.get(model).into_iter().chain(engines).find(|optimum| &*optimum.name == name)
    }

    /// The optimum of a model; the empty name is that of requests that name none. Of a served model, `None` until it is warm.
    #[must_use]
    pub fn get(&self, model: &str) -> Option<&Arc<Optimum>> {
        let DeclaredOptimum { known, engine } = self.entry(model)?;
        if let Some(optimum) = known.get() {
            return Some(optimum);
        }
        let optimum = Arc::new(self.hosted.as_ref()?(engine.as_deref()?)?);
        Some(known.get_or_init(|| optimum))
    }

    /// Whether the model has an optimum, or will have one.
    #[must_use]
    pub fn declares(&self, model: &str) -> bool {
        self.entry(model).is_some()
    }

    fn entry(&self, model: &str) -> Option<&DeclaredOptimum> {
        self.models.get(model).or_else(|| self.models.get(REST))
    }

    /// Whether no model has an optimum, or can have one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.models.is_empty() && self.engines.is_empty()
    }
}

impl fmt::Debug for ModelOptima {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelOptima").field("models", &self.models).field("engines", &self.engines.len()).finish_non_exhaustive()
    }
}

fn make(
    config: &Config,
    name: &str,
    model: &ModelCost,
    plan: impl Fn(&Path) -> Result<ModelDemand, String>,
) -> Result<Optimum, CostError> {
    let incomplete = || CostError::Incomplete { model: name.to_owned() };
    if let Some(file) = &model.bench {
        let fault = |cause| CostError::Bench { model: name.to_owned(), path: file.to_string(), cause };
        let BenchFile { line, memory, source } = BenchFile::read(file.path()).map_err(fault)?;
        return Ok(Optimum { name: source.into(), time: OptimalTime::Line(line), memory });
    }
    if let (Some(ns_per_unit), Some(unit), Some(source)) = (model.ns_per_unit, model.unit, &model.source) {
        let line = CostLine { fixed_ns: model.fixed_ns.unwrap_or_default(), ns_per_unit, unit };
        return Ok(Optimum { name: format!("declared: {source}").into(), time: OptimalTime::Line(line), memory: None });
    }
    let (Some(device), Some(format)) = (&model.device, model.format) else { return Err(incomplete()) };
    let (device, peaks) = config.device(device).ok_or_else(incomplete)?;
    let flops_per_s = peaks.in_format(format).ok_or_else(incomplete)?;
    let demand = match (&model.onnx, model.flops_per_unit, model.weights, model.unit) {
        (Some(file), ..) => {
            let fault = |cause| CostError::Plan { model: name.to_owned(), path: file.to_string(), cause };
            plan(file.path()).map_err(fault)?.in_format(format)
        }
        #[expect(clippy::cast_precision_loss, reason = "a size is right to many digits")]
        (None, Some(flops_per_unit), Some(weights), Some(unit)) => {
            let bytes_per_unit = model.bytes_per_unit.unwrap_or_default();
            ModelDemand { unit, flops_per_unit, weight_bytes: weights.get() as f64, bytes_per_unit }
        }
        _ => return Err(incomplete()),
    };
    let bytes_per_s = peaks.bytes_per_s;
    let (operations, bytes) = (Rate(flops_per_s, "FLOP/s"), Rate(bytes_per_s, "B/s"));
    Ok(Optimum {
        name: format!("roofline of {device} in {}: {operations}, {bytes}", format.name()).into(),
        time: OptimalTime::Roofline { demand, flops_per_s, bytes_per_s },
        memory: Some(MemoryTraffic { fixed_bytes: demand.weight_bytes, bytes_per_unit: demand.bytes_per_unit, bytes_per_s }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::Unit;

    fn optima(json: serde_json::Value) -> Result<ModelOptima, CostError> {
        let config: Config = serde_json::from_value(json).unwrap();
        ModelOptima::new(
            &config,
            |path| match path.to_str() {
                Some("/m.onnx") => {
                    Ok(ModelDemand { unit: Unit::Row, flops_per_unit: 2e6, weight_bytes: 4e6, bytes_per_unit: 40.0 })
                }
                _ => Err("has no plan".to_owned()),
            },
            Arc::new(|_| None),
        )
    }

    #[test]
    fn a_model_has_its_own_optimum_or_that_of_the_rest() {
        let line = |ns: f64| serde_json::json!({"ns_per_unit": ns, "unit": "row", "source": "by hand"});
        let both = optima(serde_json::json!({"models": {"a": line(2.0), "*": line(3.0)}})).unwrap();
        let at = |model: &str| both.get(model).map(|optimum| optimum.time.pass_ns(10.0));
        assert_eq!([at("a"), at("b"), at("")], [Some(20.0), Some(30.0), Some(30.0)]);
        assert_eq!(&*both.get("a").unwrap().name, "declared: by hand");
        let one = optima(serde_json::json!({"models": {"a": line(2.0)}})).unwrap();
        assert!(one.get("b").is_none() && !one.is_empty() && ModelOptima::default().is_empty());
    }

    #[test]
    fn a_served_model_has_its_optimum_once_it_is_warm() {
        let config: Config = serde_json::from_value(serde_json::json!({"models": {"m": {"engine": "n"}}})).unwrap();
        let warm = Arc::new(OnceLock::new());
        let seen = warm.clone();
        let hosted = move |name: &str| {
            let line = CostLine { fixed_ns: 0.0, ns_per_unit: *seen.get()?, unit: Unit::Row };
            Some(Optimum { name: format!("engine: {name}").into(), time: OptimalTime::Line(line), memory: None })
        };
        let optima = ModelOptima::new(&config, |_| Err(String::new()), Arc::new(hosted)).unwrap();
        assert!(optima.get("m").is_none() && optima.declares("m") && !optima.declares("n"));
        warm.set(7.0).unwrap();
        let found = optima.get("m").map(|optimum| (optimum.name.to_string(), optimum.time.pass_ns(2.0)));
        assert_eq!(found, Some(("engine: n".to_owned(), 14.0)));
    }

    #[test]
    fn a_roofline_states_its_device_and_its_peaks() {
        let model = serde_json::json!({"device": "a100-sxm4-80gb", "format": "fp16", "onnx": "/m.onnx"});
        let optima = optima(serde_json::json!({"models": {"m": model}})).unwrap();
        let optimum = optima.get("m").unwrap();
        assert_eq!(&*optimum.name, "roofline of NVIDIA A100-SXM4-80GB in fp16: 312 TFLOP/s, 2039 GB/s");
        // half the bytes of the plan's
        let memory = optimum.memory.unwrap();
        assert_eq!((memory.fixed_bytes, memory.bytes_per_unit), (2e6, 20.0));
        assert!((optimum.time.pass_ns(1.0) - 2_000_020.0 / 2_039e9 * 1e9).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let told = |model: serde_json::Value| optima(serde_json::json!({"models": {"m": model}})).unwrap_err().to_string();
        let plan = told(serde_json::json!({"device": "t4", "format": "fp16", "onnx": "/other.onnx"}));
        assert_eq!(plan, "cost.models.m.onnx: /other.onnx: has no plan");
        assert!(told(serde_json::json!({"bench": "/nowhere"})).starts_with("cost.models.m.bench: /nowhere: cannot be read"));
        assert_eq!(told(serde_json::json!({})), "cost.models.m: is not a complete optimum");
    }
}
