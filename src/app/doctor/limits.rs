//! What the system allows against what Lapwing needs: file descriptors, processors, memory. Of the process that runs, if it can be seen,
//! else of this one, which has what a Lapwing would have that is started from the same place.

use std::path::Path;

use super::cgroup::GroupLimits;
use super::check::DoctorReport;
use super::process::Processes;
use crate::config::Config;
use lapwing_net::{clients_within, descriptors_for};
use lapwing_settings::Size;

/// With fewer descriptors the admin server and the receivers have fewer connections than they are bounded to.
const LEAST_DESCRIPTORS: u64 = 1024;
/// What Lapwing has resident at most without budgets of the configuration (docs/BENCHMARKS.md: 30 MiB while requests come, 96 MiB with
/// large bodies).
const RESIDENT: u64 = 96 << 20;
/// Below this it does not live long.
const LEAST_MEMORY: u64 = 32 << 20;
/// The share of periods without processor time that can be seen in latencies.
const THROTTLED: f64 = 0.01;

pub(crate) fn check(config: &Config, processes: &Processes, pid: Option<u32>, report: &mut DoctorReport) {
    let whose = pid.map_or_else(|| "here".to_owned(), |pid| format!("of pid {pid}"));
    if let Some(limit) = processes.descriptors(pid) {
        descriptors(limit, config.proxy.max_in_flight, &whose, report);
    }
    let groups = processes.cgroup(pid).unwrap_or_default();
    let limits = GroupLimits::read(Path::new("/sys/fs/cgroup"), &groups);
    processors(&limits, config.proxy.worker_threads(), &whose, report);
    memory(&limits, &needs(config), &whose, report);
}

fn descriptors(limit: u64, in_flight: u64, whose: &str, report: &mut DoctorReport) {
    const NAME: &str = "descriptors";
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let (clients, needed) = (clients_within(whole(limit)), descriptors_for(whole(in_flight)));
    let open = if limit == u64::MAX { "no limit on".to_owned() } else { limit.to_string() };
    let found = format!("{open} open files {whose}: {clients} for clients");
    let advice =
        format!("raise the hard limit to {needed} (systemd: LimitNOFILE=; docker: --ulimit nofile=; a shell: ulimit -n)");
    if limit < LEAST_DESCRIPTORS {
        report.wrong(NAME, found, advice);
    } else if clients < whole(in_flight) {
        let found = format!("{found}, fewer than proxy.max_in_flight, {in_flight}");
        report.note(NAME, found, format!("{advice}, unless clients share connections (HTTP/2)"));
    } else {
        report.ok(NAME, found);
    }
}

fn processors(limits: &GroupLimits, workers: usize, whose: &str, report: &mut DoctorReport) {
    const NAME: &str = "processors";
    let Some(quota) = limits.processors else {
        return report.ok(NAME, format!("no quota {whose}; workers: {workers}"));
    };
    let found = format!("a quota of {quota} processors {whose} (cpu.max); workers: {workers}");
    #[allow(clippy::cast_precision_loss, reason = "a few threads")]
    let is_short = (workers as f64) > quota.max(1.0);
    match limits.throttled {
        _ if is_short => report.note(NAME, found, "raise the quota (a pod's CPU limit, CPUQuota=), or lower proxy.workers to it"),
        Some(share) if share >= THROTTLED => report.note(
            NAME,
            format!("{found}; it was used up in {:.0} % of its periods, and requests waited", 100.0 * share),
            "raise the quota (a pod's CPU limit, CPUQuota=), or take it away",
        ),
        _ => report.ok(NAME, found),
    }
}

/// What the configuration lets it hold, a name for each part.
fn needs(config: &Config) -> Vec<(&'static str, u64)> {
    let mut needs = vec![("Lapwing itself", RESIDENT)];
    if !config.routes.is_empty() {
        needs.push(("hold.budget", config.hold.budget.get()));
    }
    if !config.shadow.targets.is_empty() {
        needs.push(("shadow.budget", config.shadow.budget.get()));
    }
    needs.extend(engine_needs(config));
    needs
}

#[cfg(feature = "engine")]
fn engine_needs(config: &Config) -> Vec<(&'static str, u64)> {
    let files = config.engine.wanted().filter_map(|model| std::fs::metadata(model.path).ok()).map(|file| file.len()).sum();
    if config.engine.is_on() {
        vec![("engine.body_budget", config.engine.body_budget.get()), ("its models' files", files)]
    } else {
        Vec::new()
    }
}

#[cfg(not(feature = "engine"))]
fn engine_needs(_: &Config) -> Vec<(&'static str, u64)> {
    Vec::new()
}

fn memory(limits: &GroupLimits, needs: &[(&str, u64)], whose: &str, report: &mut DoctorReport) {
    const NAME: &str = "memory";
    let needed = needs.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let parts = needs.iter().map(|(name, bytes)| format!("{name} {}", mib(*bytes))).collect::<Vec<_>>().join(", ");
    let Some(limit) = limits.memory else {
        return report.ok(NAME, format!("no limit {whose}; {} may be needed ({parts})", mib(needed)));
    };
    let found = format!("a limit of {} {whose} (memory.max); {} may be needed ({parts})", mib(limit), mib(needed));
    let advice = format!("raise the limit to {} (a pod's memory limit, MemoryMax=), or lower the budgets", mib(needed));
    if limit < LEAST_MEMORY {
        report.wrong(NAME, found, advice);
    } else if limits.killed > 0 {
        report.note(NAME, format!("{found}; the kernel has killed {} processes of this group for it", limits.killed), advice);
    } else if limit < needed {
        report.note(NAME, found, advice);
    } else {
        report.ok(NAME, found);
    }
}

fn mib(bytes: u64) -> String {
    Size(bytes.div_ceil(1 << 20) << 20).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::check::CheckVerdict::{self, Note, Ok, Wrong};
    use super::*;

    fn verdict(look: impl FnOnce(&mut DoctorReport)) -> (CheckVerdict, String) {
        let mut report = DoctorReport::default();
        look(&mut report);
        (report.checks[0].verdict, report.text())
    }

    #[test]
    fn descriptors_are_held_against_the_requests_in_flight() {
        for (limit, expected) in [(256, Wrong), (1024, Note), (6544, Note), (6560, Ok), (u64::MAX, Ok)] {
            let (found, text) = verdict(|report| descriptors(limit, 4096, "here", report));
            assert_eq!(found, expected, "{text}");
            assert_eq!(text.contains("raise the hard limit to 6560"), expected != Ok, "{text}");
        }
    }

    #[test]
    fn a_quota_is_held_against_the_workers_and_shown_by_what_it_cost() {
        let of = |processors, throttled| GroupLimits { processors, throttled, ..GroupLimits::default() };
        for (limits, workers, expected) in [
            (of(None, None), 4, Ok),
            (of(Some(0.5), Some(0.0)), 1, Ok),
            (of(Some(2.0), None), 2, Ok),
            (of(Some(2.0), None), 3, Note),
            (of(Some(2.0), Some(0.2)), 1, Note),
        ] {
            let (found, text) = verdict(|report| processors(&limits, workers, "here", report));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn memory_is_held_against_the_budgets() {
        let of = |memory, killed| GroupLimits { memory, killed, ..GroupLimits::default() };
        let needs = [("Lapwing itself", RESIDENT), ("shadow.budget", 64 << 20)];
        for (limits, expected) in [
            (of(None, 0), Ok),
            (of(Some(160 << 20), 0), Ok),
            (of(Some(159 << 20), 0), Note),
            (of(Some(1 << 30), 1), Note),
            (of(Some(16 << 20), 0), Wrong),
        ] {
            let (found, text) = verdict(|report| memory(&limits, &needs, "here", report));
            assert_eq!(found, expected, "{text}");
            assert!(text.contains("shadow.budget 64MiB"), "{text}");
        }
    }
}
