//! The counters of /proc/stat and /proc/pressure/cpu at one moment.

use std::fs::File;
use std::io::Read;

/// The longest beginning of a file that is read, in bytes: the line of all processors comes first.
const BEGINNING: usize = 512;

/// What the kernel has counted since its start. Processor time is in its own ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostReading {
    /// Of all processors, idle or not.
    pub(crate) total: u64,
    /// Idle, or waiting for a disk.
    pub(crate) idle: u64,
    /// Taken by the hypervisor.
    pub(crate) steal: u64,
    /// Microseconds in which some process waited for a processor; `None` where the kernel does not count them.
    pub(crate) pressure_us: Option<u64>,
}

impl HostReading {
    /// Reads both files; `None` where the first cannot be read. Does not block, but for the kernel's own time: some 50 µs.
    #[must_use]
    pub fn read() -> Option<Self> {
        let mut reading = Self::of_stat(&beginning("/proc/stat")?)?;
        reading.pressure_us = beginning("/proc/pressure/cpu").as_deref().and_then(pressure_us);
        Some(reading)
    }

    /// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; a guest's time is in the user's.
    fn of_stat(stat: &str) -> Option<Self> {
        let mut fields = stat.lines().next()?.split_whitespace();
        if fields.next()? != "cpu" {
            return None;
        }
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = <[u64; 8]>::try_from(ticks).ok()?;
        let (total, idle) = ([user, nice, system, idle, iowait, irq, softirq, steal].iter().sum(), idle + iowait);
        Some(Self { total, idle, steal, pressure_us: None })
    }
}

/// `some avg10=… avg60=… avg300=… total=<µs>`.
fn pressure_us(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    some.split_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

fn beginning(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(BEGINNING);
    File::open(path).ok()?.take(BEGINNING as u64).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_read_as_the_kernel_writes_them() {
        let stat = "cpu  100 1 20 700 30 4 5 140 9 9\ncpu0 1 2 3";
        assert_eq!(HostReading::of_stat(stat), Some(HostReading { total: 1_000, idle: 730, steal: 140, pressure_us: None }));
        for broken in ["", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu a b c d e f g h"] {
            assert_eq!(HostReading::of_stat(broken), None, "{broken}");
        }
        let pressure =
            "some avg10=92.59 avg60=85.99 avg300=64.56 total=483548446\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!((pressure_us(pressure), pressure_us("full total=3"), pressure_us("")), (Some(483_548_446), None, None));
    }

    #[test]
    fn this_machine_says_it() {
        let (first, second) = (HostReading::read().unwrap(), HostReading::read().unwrap());
        assert!(first.total > 0 && second.total >= first.total && first.idle <= first.total, "{first:?} {second:?}");
    }
}
