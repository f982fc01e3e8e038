//! How many threads proxy requests where the configuration leaves it open (`proxy.workers: 0`).
//!
//! One worker carries tens of thousands of requests a second, and what it does not use is the model server's. So there is one, unless the
//! process may use fewer processors than the machine has: then somebody has set aside so many for the container, by a quota (a CPU limit)
//! or by a set of processors, and each whole one gets a worker. Further ones would split connections and caches for nothing.

use std::fs;

use lapwing_settings::Cpus;

/// More is never chosen.
const MOST: usize = 4;

/// The processors of the machine that are online, as Linux lists them.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// How many workers the processors that this process may use are worth.
pub(crate) fn for_this_process() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let online = fs::read_to_string(ONLINE).ok().and_then(|list| list.trim().parse::<Cpus>().ok());
    chosen(usable, online.map(|online| online.numbers().len()))
}

/// For a process that may use `usable` processors of a machine that has `online`, if that is known.
fn chosen(usable: usize, online: Option<usize>) -> usize {
    if online.is_some_and(|online| usable < online) { usable.clamp(1, MOST) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_for_each_whole_processor_that_was_set_aside() {
        for (usable, online, workers) in [
            (64, Some(64), 1),
            (1, Some(64), 1),
            (2, Some(64), 2),
            (3, Some(4), 3),
            (16, Some(64), MOST),
            (8, None, 1),
            (1, Some(1), 1),
        ] {
            assert_eq!(chosen(usable, online), workers, "{usable} of {online:?}");
        }
        assert!((1..=MOST).contains(&for_this_process()));
    }
}
