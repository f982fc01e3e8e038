//! `lapwing merge` and `lapwing compare`: the logs of `/hdr` of many pods added up, and those of two times compared.

mod compare;
mod log;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;

use self::log::HdrLog;

/// The exit code for a file that cannot be read (`EX_DATAERR`).
const DATA: u8 = 65;
/// The exit code for a file that cannot be written (`EX_CANTCREAT`).
const CREATE: u8 = 73;

/// What to merge.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct MergeArgs {
    /// Logs of /hdr, one of each pod
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the merged log here too; it can be merged and compared again
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What to compare.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CompareArgs {
    /// A log of /hdr, or several merged by `lapwing merge --out`
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The same of a later time, or of another version
    #[arg(value_name = "AFTER")]
    after: PathBuf,
}

/// Runs `lapwing merge`. Returns the exit code.
pub fn merge(args: &MergeArgs) -> u8 {
    report("merge", merged(args))
}

/// Runs `lapwing compare`. Returns the exit code.
pub fn compare(args: &CompareArgs) -> u8 {
    let both = read(&args.before).and_then(|before| Ok((before, read(&args.after)?)));
    report("compare", both.map(|(before, after)| compare::compared(&before, &after)).map_err(|reason| (DATA, reason)))
}

fn report(command: &str, text: Result<String, (u8, String)>) -> u8 {
    match text {
        Ok(text) => {
            // a closed pipe is not an error
            drop(io::stdout().lock().write_all(text.as_bytes()));
            0
        }
        Err((code, reason)) => {
            eprintln!("lapwing {command}: {reason}");
            code
        }
    }
}

fn read(path: &std::path::Path) -> Result<HdrLog, String> {
    let mut log = HdrLog::default();
    log.add_file(path).map(|()| log)
}

fn merged(args: &MergeArgs) -> Result<String, (u8, String)> {
    let mut log = HdrLog::default();
    for file in &args.files {
        log.add_file(file).map_err(|reason| (DATA, reason))?;
    }
    if let Some(path) = &args.out {
        let fails = |reason: String| (CREATE, format!("{}: {reason}", path.display()));
        let mut out = BufWriter::new(File::create(path).map_err(|error| fails(error.to_string()))?);
        log.write(&mut out).and_then(|()| out.flush().map_err(|error| error.to_string())).map_err(fails)?;
    }
    Ok(table::table(&log))
}
