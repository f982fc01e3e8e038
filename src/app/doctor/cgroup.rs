//! The limits of a process's control groups, of version 2 and of version 1: processors, memory, and what they cost so far.
//!
//! A limit of a group above holds too, so the least of all counts. In a container that sees only a part of the tree, what is mounted stands
//! for its group.

use std::fs;
use std::path::{Path, PathBuf};

/// Version 1 has no word for "no limit": it shows the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 60;

/// What is known of the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GroupLimits {
    /// Processors by a quota.
    pub(crate) processors: Option<f64>,
    /// Bytes.
    pub(crate) memory: Option<u64>,
    /// Processes of the group that were killed because its memory was full.
    pub(crate) killed: u64,
    /// The share of periods, `0..=1`, in which the quota was used up.
    pub(crate) throttled: Option<f64>,
}

impl GroupLimits {
    /// Those of a process with this `cgroup` file, with the controllers mounted below `root`.
    pub(crate) fn read(root: &Path, groups: &str) -> Self {
        let (cpu, memory) = (Group::of(root, groups, "cpu"), Group::of(root, groups, "memory"));
        let quota = |folder: &Path| {
            let text = read(&folder.join("cpu.max")).or_else(|| {
                let [quota, period] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|name| read(&folder.join(name)));
                Some(format!("{} {}", quota?.trim(), period?.trim()))
            });
            processors(&text?)
        };
        let bytes = |folder: &Path| {
            let text = read(&folder.join("memory.max")).or_else(|| read(&folder.join("memory.limit_in_bytes")))?;
            text.trim().parse::<u64>().ok().filter(|bytes| *bytes < NO_LIMIT)
        };
        let of_group = |group: &Group, files: [&str; 2]| files.iter().find_map(|name| read(&group.folders.first()?.join(name)));
        let killed = of_group(&memory, ["memory.events", "memory.oom_control"]).and_then(|text| field(&text, "oom_kill"));
        let stat = of_group(&cpu, ["cpu.stat", "cpu.stat"]).unwrap_or_default();
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let throttled = match (field(&stat, "nr_throttled"), field(&stat, "nr_periods")) {
            (Some(throttled), Some(periods)) if periods > 0 => Some(throttled as f64 / periods as f64),
            _ => None,
        };
        Self {
            processors: cpu.folders.iter().filter_map(|folder| quota(folder)).min_by(f64::total_cmp),
            memory: memory.folders.iter().filter_map(|folder| bytes(folder)).min(),
            killed: killed.unwrap_or_default(),
            throttled,
        }
    }
}

/// The folders of a process's group for one controller, and of the groups above it.
struct Group {
    folders: Vec<PathBuf>,
}

impl Group {
    fn of(root: &Path, groups: &str, controller: &str) -> Self {
        let lines = groups.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?, parts.next()?))
        });
        let named: Vec<(&str, &str)> = lines.collect();
        let old = named.iter().find(|(controllers, _)| controllers.split(',').any(|one| one == controller));
        let mount = old.map(|_| root.join(controller)).filter(|mount| mount.is_dir());
        let (mount, path) = match (mount, old) {
            (Some(mount), Some((_, path))) => (mount, *path),
            _ => (root.to_owned(), named.iter().find(|(controllers, _)| controllers.is_empty()).map_or("/", |(_, path)| *path)),
        };
        let own = Path::new(path.trim_start_matches('/'));
        let own = if mount.join(own).is_dir() { own } else { Path::new("") };
        Self { folders: own.ancestors().map(|part| mount.join(part)).collect() }
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// `max 100000`, `150000 100000`; version 1 has -1 for `max`.
fn processors(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// The number behind a name, in a file of a name and a number a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_counts() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("system.slice/cpu.max", "150000 100000\n"),
                ("system.slice/memory.max", "max\n"),
                ("system.slice/lapwing.service/cpu.max", "max 100000\n"),
                ("system.slice/lapwing.service/memory.max", "268435456\n"),
                ("system.slice/lapwing.service/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"),
                ("system.slice/lapwing.service/cpu.stat", "usage_usec 9\nnr_periods 40\nnr_throttled 10\n"),
            ],
        );
        let read = GroupLimits::read(root.path(), "0::/system.slice/lapwing.service\n");
        assert_eq!(read, GroupLimits { processors: Some(1.5), memory: Some(256 << 20), killed: 2, throttled: Some(0.25) });
        // a container that sees only its own group, by another name
        write(root.path(), &[("memory.max", "64\n"), ("cpu.max", "200000 100000")]);
        let read = GroupLimits::read(root.path(), "0::/kubepods/pod1/c2\n");
        assert_eq!((read.processors, read.memory), (Some(2.0), Some(64)));
        assert_eq!(GroupLimits::read(&root.path().join("none"), "0::/"), GroupLimits::default());
    }

    #[test]
    fn version_one_has_a_folder_for_each_controller() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("memory/docker/x/memory.limit_in_bytes", "536870912\n"),
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/docker/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
                ("cpu/docker/x/cpu.cfs_quota_us", "50000\n"),
                ("cpu/docker/x/cpu.cfs_period_us", "100000\n"),
                ("cpu/cpu.cfs_quota_us", "-1\n"),
                ("cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        let groups = "9:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/\n0::/\n";
        let read = GroupLimits::read(root.path(), groups);
        assert_eq!(read, GroupLimits { processors: Some(0.5), memory: Some(512 << 20), killed: 1, throttled: None });
        assert_eq!(GroupLimits::read(root.path(), "9:memory:/\n3:cpu,cpuacct:/\n"), GroupLimits::default());
    }
}
