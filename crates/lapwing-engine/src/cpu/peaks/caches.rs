//! The sizes of the processor's caches, and how much memory a measurement may use, as Linux reports them; in bytes.

use std::fs;
use std::path::Path;

/// The defaults where Linux reports nothing: the sizes of common servers.
const DEFAULT: Caches = Caches { l2_bytes: 1 << 20, llc_bytes: 32 << 20, llc_cpus: 1 };

/// Sizes of the caches of the first processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The second-level cache of one core.
    pub l2_bytes: usize,
    /// The last-level cache; equal to the second level if there is no other.
    pub llc_bytes: usize,
    /// Processors that share one last-level cache, at least one.
    pub llc_cpus: usize,
}

impl Caches {
    /// Reads the sizes from Linux; where they are missing, 1 MiB and 32 MiB.
    #[must_use]
    pub fn probe() -> Self {
        Self::read(Path::new("/sys/devices/system/cpu/cpu0/cache")).unwrap_or(DEFAULT)
    }

    /// Reads a sysfs folder of `index*` entries.
    fn read(folder: &Path) -> Option<Self> {
        let mut levels: Vec<(u32, usize, usize)> = Vec::new();
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let text = |name: &str| fs::read_to_string(entry.path().join(name)).map(|text| text.trim().to_owned()).ok();
            if text("type").is_none_or(|kind| kind == "Instruction") {
                continue;
            }
            let level = text("level").and_then(|level| level.parse().ok());
            if let (Some(level), Some(bytes)) = (level, text("size").and_then(|size| bytes_of(&size))) {
                levels.push((level, bytes, text("shared_cpu_list").and_then(|list| count_of(&list)).unwrap_or(1)));
            }
        }
        levels.sort_unstable();
        let l2 = levels.iter().find(|level| level.0 == 2)?;
        let llc = levels.last()?;
        Some(Self { l2_bytes: l2.1, llc_bytes: llc.1.max(l2.1), llc_cpus: llc.2.max(1) })
    }

    /// Total second-level cache of the cores of `threads` threads, in bytes.
    #[must_use]
    pub fn l2_of(&self, threads: usize) -> usize {
        self.l2_bytes.saturating_mul(threads.max(1))
    }

    /// Total last-level cache, in bytes, of the fewest caches that `threads` threads can be spread over. One thread can
    /// fill all of a cache; other processes may take a part of it, so the result is an upper bound.
    #[must_use]
    pub fn llc_of(&self, threads: usize) -> usize {
        self.llc_bytes.saturating_mul(threads.max(1).div_ceil(self.llc_cpus))
    }
}

/// `512K`, `32M`; a bare number is bytes.
fn bytes_of(size: &str) -> Option<usize> {
    let digits = size.trim_end_matches(['K', 'M', 'G']);
    let shift = match size.get(digits.len()..)? {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok().filter(|bytes| *bytes > 0)?.checked_mul(1 << shift)
}

/// How many numbers the list `0-3,8,10-11` contains.
fn count_of(list: &str) -> Option<usize> {
    let mut count = 0usize;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Bytes that this process may still allocate: what is free on the machine or in its control group, whichever is less;
/// `None` if neither is known.
#[must_use]
pub(crate) fn free_bytes() -> Option<usize> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(most, taken)| most.saturating_sub(taken));
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    group.into_iter().chain(machine).min()
}

/// `MemAvailable` of `/proc/meminfo`, which is in kibibytes.
fn available(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_lists_are_read() {
        assert_eq!([bytes_of("512K"), bytes_of("32M"), bytes_of("77")], [Some(512 << 10), Some(32 << 20), Some(77)]);
        assert_eq!([bytes_of("K"), bytes_of("0K"), bytes_of("3T"), bytes_of("")], [None; 4]);
        assert_eq!([count_of("0-3,8,10-11"), count_of("5"), count_of("3-1"), count_of("")], [Some(7), Some(1), None, None]);
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    12 kB\n"), Some(12 << 10));
    }

    #[test]
    fn threads_reach_as_many_caches_as_they_must_lie_on() {
        let caches = Caches { l2_bytes: 10, llc_bytes: 100, llc_cpus: 8 };
        assert_eq!([1, 8, 9, 16].map(|threads| caches.llc_of(threads)), [100, 100, 200, 200]);
        assert_eq!(caches.l2_of(3), 30);
        assert!(Caches::probe().llc_bytes >= Caches::probe().l2_bytes);
    }

    #[test]
    fn a_folder_without_a_second_level_says_nothing() {
        assert_eq!(Caches::read(Path::new("/nowhere")), None);
        assert_eq!(Caches::read(Path::new("/")), None);
    }
}
