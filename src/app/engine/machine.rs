//! The threads and processors of a measurement, the processor's vector instructions, and percentiles of times.

use std::sync::Arc;

use super::cli::CpuList;
use super::error::ToolError;
use lapwing_engine::cpu::threads::{Threads, pin, usable};

/// A pool of `count` threads, each pinned to a processor of the list if there is one.
pub(crate) fn threads(count: usize, cpus: Option<&CpuList>) -> Result<Arc<Threads>, ToolError> {
    let cpus = cpus.map_or(&[][..], |cpus| &cpus.0);
    if !cpus.is_empty() && cpus.len() < count {
        return Err(ToolError::argument("cpus", format!("{cpus:?} are too few for {count} threads")));
    }
    let usable = usable();
    if let Some(cpu) = cpus.iter().find(|cpu| !usable.contains(cpu)) {
        return Err(ToolError::argument("cpus", format!("{cpu} is not among those that this process may use, {usable:?}")));
    }
    Ok(Arc::new(Threads::new(count, cpus).map_err(ToolError::told)?))
}

/// Runs `work` on a new thread. If `threads` is a single thread, this thread does its work and is pinned to the list's first
/// processor; several threads are pinned already.
pub(crate) fn apart<T: Send>(
    threads: &Threads,
    cpus: Option<&CpuList>,
    work: impl FnOnce() -> Result<T, ToolError> + Send,
) -> Result<T, ToolError> {
    let first = cpus.filter(|_| threads.count() == 1).and_then(|cpus| cpus.0.first()).copied();
    let held = move || {
        if let Some(cpu) = first {
            pin(cpu).map_err(ToolError::told)?;
        }
        work()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("lapwing-engine".to_owned()).spawn_scoped(scope, held)?;
        thread.join().unwrap_or_else(|_| Err(ToolError::told("a thread panicked")))
    })
}

/// The vector instructions of this processor that kernels may use, as Linux names them.
#[cfg(target_arch = "x86_64")]
pub(crate) fn cpu_flags() -> String {
    let flags = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx_vnni", is_x86_feature_detected!("avxvnni")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512_vnni", is_x86_feature_detected!("avx512vnni")),
    ];
    let there: Vec<&str> = flags.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
    there.join(" ")
}

/// The vector instructions of this processor that kernels may use: none are known.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn cpu_flags() -> String {
    String::new()
}

/// The percentile of sorted times; 0 if there are none.
pub(crate) fn percentile(sorted_ns: &[u64], share: f64) -> u64 {
    let rank = (share * sorted_ns.len() as f64).ceil() as usize;
    sorted_ns.get(rank.max(1) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_there_were() {
        let times: Vec<u64> = (1..=200).collect();
        assert_eq!([0.5, 0.99, 1.0, 0.0].map(|share| percentile(&times, share)), [100, 198, 200, 1]);
        assert_eq!(percentile(&[7], 0.99), 7);
        assert_eq!(percentile(&[], 0.5), 0);
    }

    #[test]
    fn processors_must_be_there_and_enough() {
        let refused = |count, cpus: &[usize]| threads(count, Some(&CpuList(cpus.to_vec()))).unwrap_err().to_string();
        assert_eq!(refused(2, &[0]), "cpus: [0] are too few for 2 threads");
        assert!(refused(1, &[4095]).starts_with("cpus: 4095 is not among those"), "{}", refused(1, &[4095]));
        let first = usable()[0];
        let cpus = CpuList(vec![first]);
        let here = apart(&Threads::one(), Some(&cpus), || Ok(usable())).unwrap();
        assert_eq!(here, [first]);
        // the caller's own thread stays where it was, also when several threads run
        let all = usable();
        let two = Threads::new(2, &[]).unwrap();
        assert_eq!(apart(&two, Some(&cpus), || Ok(usable())).unwrap(), all);
    }
}
