//! Tries to load a model in a process of its own, with limits of memory and time, before this one loads it. What tract computes while it
//! simplifies a graph cannot be bounded from outside, and an allocation that fails ends the process.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;

use lapwing_ledger::Stamp;
use lapwing_model::{Model, ModelOptions, Workspace};
use lapwing_settings::{Period, Size};

/// Memory for each byte of the model's files: the file, its decoded form, the graph's, and the packed one.
const COPIES: u64 = 4;
/// What a trial may take by the clock, in multiples of its processor time: the machine may be busy.
const CLOCK: u64 = 4;
const POLL: Duration = Duration::from_millis(2);
/// What is read of the text that the trial wrote about its failure, in bytes.
const TEXT: u64 = 4096;
/// What a trial that succeeded says.
const LOADED: &str = "loaded";

/// This program, once it is known to be `lapwing`.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Lets models be tried first. Only the command calls it: another program that uses this library cannot be started as `lapwing`, and
/// loads models without a trial.
pub(crate) fn enable() {
    if let Ok(program) = std::env::current_exe() {
        // a second call finds the same path
        drop(PROGRAM.set(program));
    }
}

/// What loading a model may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadLimits {
    /// Memory besides [`COPIES`] times the model's files.
    pub(crate) memory: Size,
    /// Processor time.
    pub(crate) time: Period,
}

impl Default for LoadLimits {
    fn default() -> Self {
        let config = crate::serving::Config::default();
        Self { memory: config.load_memory, time: config.load_time }
    }
}

/// Why a model could not be loaded by its trial.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrialError {
    /// It says itself what is wrong with the model.
    #[error("{0}")]
    Refused(String),
    #[error(
        "{path}: could not be loaded: it took more than {time} of processor time; engine.load_time sets the limit",
        path = path.display()
    )]
    Time { path: PathBuf, time: Period },
    #[error(
        "{path}: could not be loaded: it took more than {memory} of memory; engine.load_memory sets the limit",
        path = path.display()
    )]
    Memory { path: PathBuf, memory: Size },
    #[error("{path}: could not be loaded: the trial ended with {status}", path = path.display())]
    Ended { path: PathBuf, status: ExitStatus },
    #[error("the trial could not be started: {0}")]
    Start(#[from] std::io::Error),
}

/// The arguments of a trial.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct TryLoadArgs {
    /// The model, an ONNX file
    model: PathBuf,
    /// Bytes of memory
    #[arg(long)]
    memory: u64,
    /// Seconds of processor time
    #[arg(long)]
    seconds: u64,
}

/// Tries to load a model.
///
/// # Errors
///
/// [`TrialError`] says what is wrong with the model, or which limit it exceeds.
pub(crate) fn load(path: &Path, limits: LoadLimits) -> Result<(), TrialError> {
    let Some(program) = PROGRAM.get() else { return Ok(()) };
    let memory = limits.memory.get().saturating_add(files(path).saturating_mul(COPIES));
    let seconds = limits.time.get().as_secs().max(1);
    let mut command = Command::new(program);
    command.args(["engine", "try-load"]).arg(path);
    command.arg("--memory").arg(memory.to_string()).arg("--seconds").arg(seconds.to_string());
    let began = Stamp::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Duration::from_nanos(began.elapsed()) > Duration::from_secs(seconds.saturating_mul(CLOCK)) {
            child.kill()?;
            child.wait()?;
            return Err(TrialError::Time { path: path.to_owned(), time: limits.time });
        }
        std::thread::sleep(POLL);
    };
    let said = child.stdout.take().map(text).unwrap_or_default();
    if status.success() && said == LOADED {
        return Ok(());
    }
    let failure = child.stderr.take().map(text).unwrap_or_default();
    Err(reason(path, limits.time, Size::mib(memory >> 20), status, said, &failure))
}

fn reason(path: &Path, time: Period, memory: Size, status: ExitStatus, said: String, failure: &str) -> TrialError {
    use std::os::unix::process::ExitStatusExt;
    /// The signal of a process that used up its processor time.
    const SIGXCPU: i32 = 24;

    let path = path.to_owned();
    match status.signal() {
        Some(SIGXCPU) => TrialError::Time { path, time },
        // what Rust's allocator says before it aborts, and tract's before it panics
        _ if ["memory allocation of", "failed to allocate"].iter().any(|words| failure.contains(words)) => {
            TrialError::Memory { path, memory }
        }
        None if !said.is_empty() && said != LOADED => TrialError::Refused(said),
        _ => TrialError::Ended { path, status },
    }
}

fn text(pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // a pipe that breaks ends the text
    drop(pipe.take(TEXT).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// The bytes of a model's file, and of the files beside it whose names begin with its name, which are its external weights.
fn files(path: &Path) -> u64 {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return 0 };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.file_name().to_str().is_some_and(|other| other.starts_with(name)));
    own.filter_map(|entry| std::fs::metadata(entry.path()).ok()).map(|file| file.len()).fold(0, u64::saturating_add)
}

/// The trial itself: loads the model within the limits, and runs one row if tract runs it, because tract sizes its tensors as it runs.
pub(crate) fn run(args: &TryLoadArgs, out: &mut dyn Write) -> ExitCode {
    let loaded = lapwing_model::process::limit(args.memory, args.seconds).map_err(|error| error.to_string());
    let loaded = loaded.and_then(|()| try_here(&args.model).map_err(|error| error.to_string()));
    let (code, said) = match loaded {
        Ok(()) => (ExitCode::SUCCESS, LOADED.to_owned()),
        Err(error) => (ExitCode::FAILURE, error),
    };
    // the parent takes silence as a failure
    drop(writeln!(out, "{said}").and_then(|()| out.flush()));
    code
}

fn try_here(path: &Path) -> Result<(), lapwing_plan::EngineError> {
    let model = Model::read(path, &ModelOptions::default())?;
    if model.executor() == "tract" {
        let call = model.synthetic_call(1, 1);
        // a model may not take a synthetic call; its warm-up says so
        drop(model.run(&mut Workspace::default(), &[&call]));
    }
    Ok(())
}
