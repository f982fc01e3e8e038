//! The report of an earlier replay, made again from its pairs.

use std::io::BufRead;
use std::sync::Arc;

use parking_lot::Mutex;

use super::report::{RECORDED, ReplayNames, ReplayReport, replay_order};
use super::session::replay_labels;
use super::settings::ReplaySettings;
use crate::counters::ShadowCounters;
use crate::outputs::OutputAccounts;
use crate::pairs::PairTable;
use crate::recording::{FileError, FileLimits, PairsHeader, read_pairs};
use crate::settings::ShadowSettings;
use crate::surface::{ShadowSurface, TargetInfo};
use lapwing_compare::outputs::Comparer;
use lapwing_ledger::Stamp;
use lapwing_metrics::{Counters, Registry};

/// Makes the report of an earlier replay again, from its pairs. `compared` describes the targets.
///
/// # Errors
///
/// What is wrong with the file.
pub fn report_of_pairs<T>(
    settings: ReplaySettings,
    file: impl BufRead,
    limits: FileLimits,
    compared: impl FnOnce(&ShadowSurface) -> T,
) -> Result<ReplayReport<T>, FileError> {
    let ShadowSettings { shadow, metrics, .. } = settings.sections;
    let labels = Arc::new(replay_labels(&metrics));
    let started = Stamp::now();
    let begin = |header: PairsHeader| {
        let labels_of = header.targets.iter().map(|name| labels.upstreams.intern(name)).collect();
        (header, PairTable::new(labels_of, u64::MAX, started))
    };
    let (header, pairs) = read_pairs(file, limits, begin, |(_, pairs), event| event.apply(pairs, &labels, started))?;
    let info = |name: &String| TargetInfo {
        name: name.clone(),
        address: "of an earlier replay".to_owned(),
        label: name.clone(),
        is_upstream: false,
    };
    let counters = Arc::new(Counters::default());
    let surface = ShadowSurface {
        registry: Arc::new(Mutex::new(Registry::new(metrics, labels.clone(), counters))),
        pairs: Arc::new(Mutex::new(pairs)),
        outputs: Arc::new(Mutex::new(OutputAccounts::new(Comparer::new(&shadow.compare), false))),
        counters: Arc::new(ShadowCounters::new(header.targets.len())),
        quotas: Arc::default(),
        routes: Arc::new(Vec::new),
        budget: Arc::new(|| (0, 0)),
        targets: header.targets.iter().map(info).collect(),
        order: replay_order(header.baseline == RECORDED),
        labels,
    };
    let names = ReplayNames { file: settings.file, baseline: header.baseline };
    Ok(ReplayReport::of(names, &surface, &settings.gates, None, header.requests, compared))
}
