//! Work against time: what the optimum takes, and how much more the upstream uses (computational debt).
//!
//! An [`Optimum`] is declared for a model: the engine's own cost line as `lapwing engine bench` measured it, a line that the user
//! declares, or the roofline of a device. Without a declaration it is the line of an engine that answers copies of the model's
//! requests as the upstream does ([`TargetEngine`]). [`ModelOptima`] finds the one of a model, and [`DebtAssessor`] notes on an
//! exchange what its forward would take by it. docs/DEBT.md has the definitions.

mod assessor;
mod bench;
mod config;
mod demand;
mod device;
mod line;
mod machine;
mod models;
mod optimum;

pub use assessor::DebtAssessor;
pub use bench::{BenchError, BenchFile};
pub use config::{Config, DeclaredDevice, ModelCost};
pub use demand::ModelDemand;
pub use device::{DEVICES, DevicePeaks, KnownDevice, NumberFormat};
pub use line::CostLine;
pub use machine::processor_name;
pub use models::{CostError, HostedOptimum, ModelOptima, TargetEngine, WarmOptimum};
pub use optimum::{BatchUse, MemoryTraffic, OptimalTime, Optimum};
