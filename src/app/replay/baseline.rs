//! What a replay and its repetition from pairs share: the baseline, the names, and the gates.

use crate::config::Config;
use lapwing_admin::ShadowSurface;
use lapwing_metrics::Labels;
use lapwing_shadow::gates::{Gate, GateInputs, GateResult, check_all};
use lapwing_shadow::{PairOrder, TargetInfo};

/// What the targets are compared with if there is one: the recorded answers.
pub(crate) const RECORDED: &str = "recorded";

/// The tables of names.
pub(crate) fn labels(config: &Config) -> Labels {
    Labels::new(config.metrics.max_routes, config.metrics.max_models, 64)
}

/// Which side of a pair goes first.
pub(crate) const fn order(is_baseline_recorded: bool) -> PairOrder {
    if is_baseline_recorded { PairOrder::AfterRecording } else { PairOrder::InTurn }
}

/// Every gate for every target, of so many requests.
pub(crate) fn checked(
    gates: &[Gate],
    surface: &ShadowSurface,
    lateness_p99_ns: Option<u64>,
    requests: Option<u64>,
) -> Vec<GateResult> {
    let pairs = surface.pairs.lock();
    let targets = surface.targets.iter().enumerate();
    let of = |(index, target): (usize, &TargetInfo)| {
        let known = GateInputs { pairs: &pairs.pooled(index), requests, lateness_p99_ns };
        check_all(gates, &target.name, &known)
    };
    targets.flat_map(of).collect()
}
