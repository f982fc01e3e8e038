//! Tries to load a model in a process of its own, with limits of memory and time, before this one loads it. What an importer computes while it
//! simplifies a graph cannot be bounded from outside, and an allocation that fails ends the process.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;

use lapwing_console::printable::printable;
use lapwing_engine::onnxruntime::{LibraryError, Runtime};
use lapwing_ledger::Stamp;
use lapwing_model::{Backend, BatchAxis, BatchTrial, ExecutorName, Model, ModelOptions, Verification, Workspace};
use lapwing_onnx::EngineError;
use lapwing_onnx::{OnnxFile, StatedShape};
use lapwing_settings::{Period, Size};

/// Memory for each byte of the model's files: the file, its decoded form, what the executor reads, and its weights, plain and packed, of half
/// precision in single.
const COPIES: u64 = 6;
/// What a trial may take by the clock, in multiples of its processor time: the machine may be busy.
const CLOCK: u64 = 4;
const POLL: Duration = Duration::from_millis(2);
/// Lengths of open axes, of which the first that the model takes is run: tokens, sides of pictures, samples of sound.
const LENGTHS: [usize; 8] = [1, 2, 8, 16, 64, 224, 512, 16_000];
/// What is read of the text that the trial wrote about its failure, in bytes.
const TEXT: u64 = 4096;
/// What is shown of it, in columns: names of a file may be long, and may have line ends and escapes, which are written out.
const COLUMNS: usize = 800;
/// What a trial that succeeded says first; lines of a verification and of the executor that was tried with batches may follow.
const LOADED: &str = "loaded";
/// The start of a verification: the rows of the calls that agree, or why nothing was compared.
const AGREES: &str = "agrees ";
const NOT_COMPARED: &str = "not compared: ";
/// The start of the line of an executor whose calls may run as one, and of one whose calls may not, and why.
const JOINS: &str = "joins ";
const DOES_NOT_JOIN: &str = "does not join ";

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
    #[error("{path}: could not be loaded: {}", ended(status, said), path = path.display())]
    Ended {
        path: PathBuf,
        status: ExitStatus,
        /// What a panic said.
        said: Option<String>,
    },
    #[error("the trial could not be started: {0}")]
    Start(#[from] std::io::Error),
}

/// How a trial ended, in words.
fn ended(status: &ExitStatus, said: &Option<String>) -> String {
    match said {
        Some(said) => format!("its trial panicked: {said}"),
        None => format!("its trial ended with {status}"),
    }
}

/// What a panic said, of what it wrote: the lines behind the one that names its place.
fn panicked(failure: &str) -> Option<String> {
    const MOST: usize = 240;
    let (_, behind) = failure.split_once("panicked at ")?;
    let lines = behind.lines().skip(1).take_while(|line| !line.starts_with("note: "));
    let said = lines.collect::<Vec<_>>().join(" ");
    let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MOST).collect();
    if said.is_empty() { None } else { Some(said) }
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
    /// What is to run the model
    #[arg(long, value_parser = backend)]
    executor: Backend,
    /// ONNX Runtime's library
    #[arg(long)]
    ort_lib: Option<PathBuf>,
    /// Why there is none
    #[arg(long, conflicts_with = "ort_lib")]
    ort_missing: Option<String>,
    /// Hold the model against ONNX Runtime
    #[arg(long)]
    verify: bool,
    /// The shape of an input; may be given several times
    #[arg(long = "shape")]
    shapes: Vec<StatedShape>,
}

fn backend(name: &str) -> Result<Backend, String> {
    Backend::ALL.into_iter().find(|backend| backend.name() == name).ok_or_else(|| "is no executor".to_owned())
}

/// How a model is loaded, as far as a trial does it likewise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial<'a> {
    pub(crate) limits: LoadLimits,
    pub(crate) backend: Backend,
    pub(crate) onnxruntime: Option<&'a Result<Runtime, LibraryError>>,
    pub(crate) verify: bool,
    pub(crate) shapes: &'a [StatedShape],
}

impl Trial<'_> {
    /// A trial of a model that is run by its plan or by rten.
    pub(crate) const fn new(limits: LoadLimits) -> Self {
        Self { limits, backend: Backend::Auto, onnxruntime: None, verify: false, shapes: &[] }
    }

    /// A trial with an executor, a library and the shapes that a user states.
    pub(crate) fn of<'a>(limits: LoadLimits, options: &'a ModelOptions, shapes: &'a [StatedShape]) -> Trial<'a> {
        Trial { limits, backend: options.backend, onnxruntime: options.onnxruntime.as_ref(), verify: options.verify, shapes }
    }
}

/// What a trial says of a model that it could load.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tried {
    /// Why no plan must be made of the model; another executor could load it.
    pub(crate) unreadable: Option<String>,
    /// What came of holding the model against ONNX Runtime, unless they disagree.
    pub(crate) verification: Option<Verification>,
    /// What came of trying batches.
    pub(crate) batch_trial: BatchTrial,
}

/// Tries to load a model. If that ends the trial and any executor will do, the one that reads the file itself is tried alone: ONNX Runtime
/// where there is one, else rten.
///
/// # Errors
///
/// [`TrialError`] says what is wrong with the model, or which limit it exceeds.
pub(crate) fn load(path: &Path, trial: &Trial<'_>) -> Result<Tried, TrialError> {
    let Some(program) = PROGRAM.get() else { return Ok(Tried::default()) };
    let error = match load_once(program, path, trial) {
        Ok(tried) => return Ok(tried),
        Err(error) => error,
    };
    let has_ended = matches!(error, TrialError::Time { .. } | TrialError::Memory { .. } | TrialError::Ended { .. });
    if !has_ended || trial.backend != Backend::Auto {
        return Err(error);
    }
    let backend = match trial.onnxruntime {
        Some(Ok(_)) => Backend::OnnxRuntime,
        // what a file's constants take is the same for both
        _ if matches!(error, TrialError::Memory { .. }) => return Err(error),
        _ => Backend::Rten,
    };
    match load_once(program, path, &Trial { backend, verify: false, ..*trial }) {
        Ok(tried) => Ok(Tried { unreadable: Some(error.to_string()), ..tried }),
        Err(_) => Err(error),
    }
}

fn load_once(program: &Path, path: &Path, trial: &Trial<'_>) -> Result<Tried, TrialError> {
    let limits = trial.limits;
    let memory = limits.memory.get().saturating_add(files(path).saturating_mul(COPIES));
    let seconds = limits.time.get().as_secs().max(1);
    let mut command = Command::new(program);
    command.args(["engine", "try-load"]).arg(path);
    command.arg("--memory").arg(memory.to_string()).arg("--seconds").arg(seconds.to_string());
    command.arg("--executor").arg(trial.backend.name());
    match trial.onnxruntime {
        Some(Ok(runtime)) => command.arg("--ort-lib").arg(runtime.path()),
        Some(Err(error)) => command.arg(format!("--ort-missing={error}")),
        None => &mut command,
    };
    if trial.verify {
        command.arg("--verify");
    }
    command.args(trial.shapes.iter().map(|shape| format!("--shape={shape}")));
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
    if status.success()
        && let Some(tried) = said.strip_prefix(LOADED)
    {
        return Ok(tried_of(tried));
    }
    let failure = child.stderr.take().map(text).unwrap_or_default();
    Err(reason(path, limits.time, Size::mib(memory >> 20), status, said, &failure))
}

/// What a trial that succeeded wrote.
fn tried_of(text: &str) -> Tried {
    Tried {
        unreadable: None,
        verification: text.lines().find_map(verification_of),
        batch_trial: text.lines().find_map(batch_trial_of).unwrap_or_default(),
    }
}

/// A trial that succeeded, as [`tried_of`] reads it.
fn written(model: &Model) -> String {
    let lines = [LOADED.to_owned(), verification_line(model.verification()), batch_line(model.executor(), model.batch_axis())];
    lines.map(|line| line.replace('\n', " ")).join("\n")
}

fn verification_of(line: &str) -> Option<Verification> {
    if let Some(reason) = line.strip_prefix(NOT_COMPARED) {
        return Some(Verification::NotCompared(reason.to_owned()));
    }
    let rows = line.strip_prefix(AGREES)?.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Verification::Agrees { rows })
}

/// A verification as [`verification_of`] reads it. Whoever disagrees is compared again where the model is loaded.
fn verification_line(verification: &Verification) -> String {
    match verification {
        Verification::Agrees { rows } => {
            let rows: Vec<String> = rows.iter().map(usize::to_string).collect();
            format!("{AGREES}{}", rows.join(" "))
        }
        Verification::NotCompared(reason) => format!("{NOT_COMPARED}{reason}"),
        Verification::Differs(_) => String::new(),
    }
}

fn batch_trial_of(line: &str) -> Option<BatchTrial> {
    let named = |name: &str| ExecutorName::ALL.into_iter().find(|executor| executor.name() == name);
    if let Some(name) = line.strip_prefix(JOINS) {
        return Some(BatchTrial::Told(named(name)?, BatchAxis::Shown));
    }
    let (name, reason) = line.strip_prefix(DOES_NOT_JOIN)?.split_once(": ")?;
    Some(BatchTrial::Told(named(name)?, BatchAxis::NotShown(reason.to_owned())))
}

/// What was tried with batches, as [`batch_trial_of`] reads it. Of a plan it is known.
fn batch_line(executor: ExecutorName, axis: &BatchAxis) -> String {
    match axis {
        BatchAxis::Planned => String::new(),
        BatchAxis::Shown => format!("{JOINS}{executor}"),
        BatchAxis::NotShown(reason) => format!("{DOES_NOT_JOIN}{executor}: {reason}"),
    }
}

fn reason(path: &Path, time: Period, memory: Size, status: ExitStatus, said: String, failure: &str) -> TrialError {
    use std::os::unix::process::ExitStatusExt;
    /// The signal of a process that used up its processor time.
    const SIGXCPU: i32 = 24;

    let path = path.to_owned();
    match status.signal() {
        Some(SIGXCPU) => TrialError::Time { path, time },
        // what Rust's allocator says before it aborts, and the importer's before it panics
        _ if ["memory allocation of", "failed to allocate"].iter().any(|words| failure.contains(words)) => {
            TrialError::Memory { path, memory }
        }
        None if !said.is_empty() && !said.starts_with(LOADED) => TrialError::Refused(printable(&said, COLUMNS)),
        _ => TrialError::Ended { path, status, said: panicked(failure) },
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

/// The trial itself: loads the model within the limits, and runs one row if no plan of ours runs it, because others size their tensors as they
/// run.
pub(crate) fn run(args: &TryLoadArgs, out: &mut dyn Write) -> ExitCode {
    let loaded = lapwing_model::process::limit(args.memory, args.seconds).map_err(|error| error.to_string());
    let loaded = loaded.and_then(|()| try_here(args).map_err(|error| error.to_string()));
    let (code, said) = match loaded {
        Ok(model) => (ExitCode::SUCCESS, written(&model)),
        Err(error) => (ExitCode::FAILURE, error),
    };
    // the parent takes silence as a failure
    drop(writeln!(out, "{said}").and_then(|()| out.flush()));
    code
}

fn try_here(args: &TryLoadArgs) -> Result<Model, EngineError> {
    let missing = args.ort_missing.clone().map(|reason| Err(LibraryError::told(reason)));
    let onnxruntime = args.ort_lib.as_ref().map(|path| Runtime::find(Some(path))).or(missing);
    let batch_trial = Some(BatchTrial::Here);
    let options =
        ModelOptions { backend: args.executor, onnxruntime, verify: args.verify, batch_trial, ..ModelOptions::default() };
    let model = Model::of(&OnnxFile::read(&args.model)?.with_shapes(&args.shapes)?, &options)?;
    if model.executor() != ExecutorName::Plan {
        // a model may take no synthetic call; its warm-up says so
        let mut workspace = Workspace::default();
        LENGTHS.into_iter().find(|length| model.run(&mut workspace, &[&model.synthetic_call(1, *length)]).is_ok());
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_by_its_words() {
        let text = "\nthread 'main' panicked at /some/where/x.rs:7:9:\nassertion `left == right` failed\n  left: 1\n right: 2\n\
                    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace";
        assert_eq!(panicked(text).as_deref(), Some("assertion `left == right` failed left: 1 right: 2"));
        assert_eq!(panicked("Killed"), None);
        assert_eq!(panicked(&format!("thread 'main' panicked at x:1:1:\n{}", "é".repeat(999))).unwrap().chars().count(), 240);
    }

    #[test]
    fn what_was_tried_reaches_the_process_that_loads_the_model() {
        let agrees = Verification::Agrees { rows: vec![1, 7] };
        assert_eq!(verification_of(&verification_line(&agrees)), Some(agrees));
        let not = Verification::NotCompared("a run takes 2100 ms (once)".to_owned());
        assert_eq!(verification_of(&verification_line(&not)), Some(not));
        assert_eq!(verification_of(&verification_line(&Verification::Differs("output y".to_owned()))), None);
        for axis in [BatchAxis::Shown, BatchAxis::NotShown("output y: has the shape [1]".to_owned())] {
            let told = batch_trial_of(&batch_line(ExecutorName::Rten, &axis));
            assert_eq!(told, Some(BatchTrial::Told(ExecutorName::Rten, axis)));
        }
        assert_eq!(batch_trial_of(&batch_line(ExecutorName::Plan, &BatchAxis::Planned)), None);
        // a file's names may have line ends, and are no lines of their own
        let conv = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans/refused-conv.onnx");
        let axis = BatchAxis::NotShown("input a\njoins plan".to_owned());
        let options = ModelOptions { batch_trial: Some(BatchTrial::Told(ExecutorName::Rten, axis)), ..ModelOptions::default() };
        let model = Model::read(&conv, &options).unwrap();
        let tried = tried_of(written(&model).strip_prefix(LOADED).unwrap());
        let axis = BatchAxis::NotShown("input a joins plan".to_owned());
        let verification = Some(Verification::NotCompared("engine.verify is off".to_owned()));
        assert_eq!(tried, Tried { unreadable: None, verification, batch_trial: BatchTrial::Told(ExecutorName::Rten, axis) });
    }
}
