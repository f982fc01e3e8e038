//! What `/proc` says of processes: which one listens on a port, and within which limits it runs. Of other users' processes only root sees
//! the sockets.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Of `/proc/net/tcp`: a socket that listens.
const LISTENS: &str = "0A";

/// The processes of a `/proc`.
#[derive(Debug)]
pub(crate) struct Processes {
    proc: PathBuf,
}

/// A process that holds a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    /// Its name, as the kernel has it: at most 15 bytes.
    pub(crate) name: String,
}

impl Holder {
    /// Whether it is a Lapwing by its name.
    pub(crate) fn is_lapwing(&self) -> bool {
        self.name == "lapwing"
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

impl Processes {
    pub(crate) fn of(proc: &Path) -> Self {
        Self { proc: proc.to_owned() }
    }

    /// Who listens on the port of `address`, on its address or on every one; `None` if nobody does, or it cannot be seen who.
    pub(crate) fn holder(&self, address: SocketAddr) -> Option<Holder> {
        let inodes: Vec<u64> = ["net/tcp", "net/tcp6"]
            .iter()
            .filter_map(|table| fs::read_to_string(self.proc.join(table)).ok())
            .flat_map(|table| listeners(&table, address.port()))
            .collect();
        let pid = self.pids().find(|pid| self.sockets(*pid).any(|inode| inodes.contains(&inode)))?;
        let name = fs::read_to_string(self.proc.join(pid.to_string()).join("comm")).ok()?;
        Some(Holder { pid, name: name.trim_end().to_owned() })
    }

    /// How many descriptors a process may have: the soft limit. `None` if it is gone; `u64::MAX` is no limit.
    pub(crate) fn descriptors(&self, pid: Option<u32>) -> Option<u64> {
        open_files(&fs::read_to_string(self.folder(pid).join("limits")).ok()?)
    }

    /// The control groups of a process, as its `cgroup` file lists them.
    pub(crate) fn cgroup(&self, pid: Option<u32>) -> Option<String> {
        fs::read_to_string(self.folder(pid).join("cgroup")).ok()
    }

    /// That of a process, else of this one.
    fn folder(&self, pid: Option<u32>) -> PathBuf {
        self.proc.join(pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string()))
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    fn sockets(&self, pid: u32) -> impl Iterator<Item = u64> {
        let entries = fs::read_dir(self.proc.join(pid.to_string()).join("fd")).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
    }
}

/// The inodes of the sockets that listen on `port`, by a table of the form of `/proc/net/tcp`.
fn listeners(table: &str, port: u16) -> Vec<u64> {
    let of_port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = fields.get(1)?.rsplit_once(':')?.1;
        let is_it = u16::from_str_radix(local, 16) == Ok(port) && *fields.get(3)? == LISTENS;
        is_it.then(|| fields.get(9)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(of_port).collect()
}

/// The soft limit on open files in the text of a `limits` file.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = line.split_whitespace().next()?;
    if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_by_the_port_that_it_holds() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let processes = Processes::of(Path::new("/proc"));
        let held = listener.local_addr().unwrap();
        let holder = processes.holder(held).unwrap();
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.name.is_empty() && !holder.is_lapwing());
        drop(listener);
        assert_eq!(processes.holder(held), None);
    }

    #[test]
    fn only_sockets_that_listen_hold_a_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
            \x20  1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n\
            \x20  2: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0\n";
        assert_eq!(listeners(table, 8080), [4711]);
        assert_eq!(listeners(table, 8081), [4713]);
        assert_eq!(listeners(table, 9464), [0u64; 0]);
        assert_eq!(listeners("a\nbroken table", 8080), [0u64; 0]);
    }

    #[test]
    fn the_soft_limit_on_open_files_is_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max processes             1                    2                    processes \n\
            Max open files            256                  4096                 files     \n";
        assert_eq!(open_files(limits), Some(256));
        assert_eq!(open_files("Max open files            unlimited            unlimited            files"), Some(u64::MAX));
        assert_eq!(open_files("Max processes 1"), None);
        assert!(Processes::of(Path::new("/proc")).descriptors(None).unwrap() > 0);
    }
}
