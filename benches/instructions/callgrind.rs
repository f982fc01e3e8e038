//! Runs one case of this binary under callgrind and reads the count from callgrind's output file.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::{COUNTED, Case};

/// Why a case could not be counted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("valgrind cannot be run: {0} (Debian: apt-get install valgrind)")]
    Missing(io::Error),
    #[error("{case}: valgrind failed:\n{output}")]
    Failed { case: &'static str, output: String },
    #[error("{0}: callgrind's file has no summary line")]
    NoSummary(&'static str),
}

/// Instructions per exchange of every case, in the order of the cases. A count does not depend on what runs beside it, so as many cases
/// run at a time as there are processors.
pub(crate) fn count_all(cases: &'static [Case]) -> Vec<Result<u64, Error>> {
    let next = AtomicUsize::new(0);
    let worker = || std::iter::from_fn(|| cases.get(next.fetch_add(1, Ordering::Relaxed))).map(|case| (case.name, count(case)));
    let mut counted: Vec<_> = thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, usize::from).min(cases.len());
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(|| worker().collect::<Vec<_>>())).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    counted.sort_by_key(|(name, _)| cases.iter().position(|case| case.name == *name));
    counted.into_iter().map(|(_, count)| count).collect()
}

/// Instructions per exchange, without those of client and upstream.
fn count(case: &Case) -> Result<u64, Error> {
    let with = total(case, "proxied")?;
    let without = if case.is_proxied { total(case, "direct")? } else { 0 };
    Ok(with.saturating_sub(without) / COUNTED)
}

fn total(case: &Case, path: &str) -> Result<u64, Error> {
    let out: PathBuf = std::env::temp_dir().join(format!("lapwing-instructions-{}-{}-{path}", std::process::id(), case.name));
    let this = std::env::current_exe().map_err(Error::Missing)?;
    // the environment is on the stack, so its size would change the addresses of everything else there
    let ran = Command::new("valgrind")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .args(["--tool=callgrind", "--toggle-collect=instructions::measured", "--collect-atstart=no", "--dump-line=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(this)
        .args(["--one", case.name, path])
        .stdin(Stdio::null())
        .output()
        .map_err(Error::Missing)?;
    let text = std::fs::read_to_string(&out).unwrap_or_default();
    let removed = std::fs::remove_file(&out);
    if !ran.status.success() || removed.is_err() {
        return Err(Error::Failed { case: case.name, output: String::from_utf8_lossy(&ran.stderr).into_owned() });
    }
    let summary = text.lines().find_map(|line| line.strip_prefix("summary: ")?.split(' ').next()?.parse().ok());
    summary.filter(|n| *n > 0).ok_or(Error::NoSummary(case.name))
}
