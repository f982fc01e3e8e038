//! Whether calls of a model may run as one. A plan proves that rows never touch; of any other model it is tried when it is loaded: each row of
//! small generated batches must answer what it answers alone, on every output.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::executor::{Executor, ExecutorName, Workspace};
use super::verify::{LENGTHS, Tolerance, difference};
use super::{generated, joined};
use lapwing_engine::clock::Stamp;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, OnnxFile};

/// Rows of the batches. They are of several sizes, so that what is scaled, normalised or summed over a batch shows.
const BATCHES: [usize; 2] = [2, MOST];
const MOST: usize = 3;
/// A model whose row takes longer is not tried: a start waits for it, and such calls gain nothing from one another.
const LONGEST_NS: u64 = 50_000_000;
/// How often rows are drawn until two of them have different answers: those of a tree, or of what saturates, are often alike.
const DRAWS: u32 = 4;
/// Why a model that answers all of them alike is not joined.
const ALIKE: &str = "generated rows have equal answers, which show nothing";

/// The axis along which calls of a model are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchAxis {
    /// Its plan's, of which it is known.
    Planned,
    /// The first one: rows of a batch answered what they answer alone.
    Shown,
    /// None, and why: calls run one after the other.
    NotShown(String),
}

impl fmt::Display for BatchAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planned => f.write_str("the first, by the plan"),
            Self::Shown => f.write_str("the first: rows of a batch answer as they do alone"),
            Self::NotShown(reason) => write!(f, "none: {reason}"),
        }
    }
}

/// How it is found whether calls may run as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BatchTrial {
    /// By a trial in this process.
    #[default]
    Here,
    /// By one in another process, if the same executor ran the model there.
    Told(ExecutorName, BatchAxis),
}

/// Finds whether calls of a model may run as one.
pub(crate) fn find(executor: &dyn Executor, file: Option<&OnnxFile>, trial: Option<&BatchTrial>) -> BatchAxis {
    match trial {
        _ if executor.batches() => BatchAxis::Planned,
        None => BatchAxis::NotShown("it was not tried".to_owned()),
        Some(BatchTrial::Told(name, axis)) if *name == executor.name() => axis.clone(),
        Some(_) => match tried(executor, Tolerance::of_rounding(executor, file)) {
            Ok(()) => BatchAxis::Shown,
            Err(reason) => BatchAxis::NotShown(reason),
        },
    }
}

/// Tries the first of the lengths that the model takes.
///
/// # Errors
///
/// Why the first axis is not that of a batch, or why that was not tried.
fn tried(executor: &dyn Executor, tolerance: Tolerance) -> Result<(), String> {
    let is_fixed = |port: &&TensorSpec| port.shape.first() != Some(&None);
    if let Some(port) = executor.inputs().iter().find(is_fixed) {
        return Err(format!("input {} has no open first axis", port.name));
    }
    let mut refused = "the generated rows would be too large".to_owned();
    for length in LENGTHS {
        for draw in 0..DRAWS {
            let Some(rows) = generated_rows(executor, length, draw)? else { break };
            match Alone::run(executor, rows)? {
                Ok(alone) if alone.differ(tolerance) => return alone.compare(executor, tolerance),
                // what answers everything alike shows nothing
                Ok(_) if draw + 1 == DRAWS => return Err(ALIKE.to_owned()),
                Ok(_) => {}
                Err(error) => {
                    refused = format!("a generated row is refused: {error}");
                    break;
                }
            }
        }
    }
    Err(refused)
}

/// As many different calls of one row as the largest batch has; `None` if they would be too large.
fn generated_rows(executor: &dyn Executor, length: usize, draw: u32) -> Result<Option<Vec<Vec<Tensor>>>, String> {
    let Some(call) = generated::drawn(executor, MOST, length, draw) else { return Ok(None) };
    let mut rows = vec![Vec::new(); MOST];
    for tensor in &call {
        let parts = joined::split(tensor, &[1; MOST]).map_err(|reason| format!("input {} {reason}", tensor.name))?;
        rows.iter_mut().zip(parts).for_each(|(row, part)| row.push(part));
    }
    Ok(Some(rows))
}

/// Rows that ran alone.
struct Alone {
    rows: Vec<Vec<Tensor>>,
    outputs: Vec<Vec<Tensor>>,
    workspace: Workspace,
}

impl Alone {
    /// Runs rows one after the other; the error of one that is not taken is the inner one.
    fn run(executor: &dyn Executor, rows: Vec<Vec<Tensor>>) -> Result<Result<Self, EngineError>, String> {
        let (mut workspace, mut outputs) = (Workspace::default(), Vec::new());
        for row in &rows {
            let began = Stamp::now();
            match answers(executor, &mut workspace, &[row]) {
                Ok(of_row) => outputs.extend(of_row),
                Err(error) => return Ok(Err(error)),
            }
            if began.elapsed() > LONGEST_NS {
                return Err(format!("a row takes {} ms, too long to try batches", began.elapsed() / 1_000_000));
            }
        }
        Ok(Ok(Self { rows, outputs, workspace }))
    }

    /// Whether two of the rows have different answers.
    fn differ(&self, tolerance: Tolerance) -> bool {
        let is_unlike = |(one, other): (&Tensor, &Tensor)| difference(one, other, tolerance).is_some();
        self.outputs.windows(2).any(|rows| rows[0].iter().zip(&rows[1]).any(is_unlike))
    }

    /// Holds the rows of batches against the rows alone.
    fn compare(mut self, executor: &dyn Executor, tolerance: Tolerance) -> Result<(), String> {
        for rows in BATCHES {
            let calls: Vec<&[Tensor]> = self.rows[..rows].iter().map(Vec::as_slice).collect();
            let together = answers(executor, &mut self.workspace, &calls).map_err(|error| match error {
                EngineError::Run { reason } => format!("a batch of {rows} rows: {reason}"),
                other => format!("a batch of {rows} rows: {other}"),
            })?;
            for (at, (row, alone)) in together.iter().zip(&self.outputs).enumerate() {
                let mut pairs = row.iter().zip(alone);
                let found = pairs.find_map(|(got, alone)| Some((&got.name, difference(got, alone, tolerance)?)));
                if let Some((name, how)) = found {
                    return Err(format!("row {at} of a batch of {rows} is not what it is alone: output {name} {how}"));
                }
            }
        }
        Ok(())
    }
}

/// The outputs of calls: of one as it is, of several as one.
fn answers(executor: &dyn Executor, workspace: &mut Workspace, calls: &[&[Tensor]]) -> Result<Vec<Vec<Tensor>>, EngineError> {
    calls.iter().try_for_each(|call| executor.accept(call).map(drop))?;
    let all = vec![true; executor.outputs().len()];
    let ran = catch_unwind(AssertUnwindSafe(|| match calls {
        [_] => executor.run(workspace, calls, &all),
        _ => joined::run(executor, workspace, calls, &all),
    }));
    ran.unwrap_or_else(|_| Err(EngineError::Run { reason: "it gave up".into() })).map(|ran| ran.outputs)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use super::super::{BatchResult, Model, ModelOptions};
    use super::*;
    use crate::choice::Backend;
    use lapwing_engine::placement::Placement;
    use lapwing_onnx::tensor::Datatype;

    /// An executor that answers a tensor `x` of three columns with a tensor `y`.
    struct Rows<F>(F, Vec<TensorSpec>);

    impl<F> fmt::Debug for Rows<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Rows")
        }
    }

    impl<F: Fn(usize, Vec<f32>) -> Result<Tensor, EngineError> + Send + Sync> Executor for Rows<F> {
        fn name(&self) -> ExecutorName {
            ExecutorName::Rten
        }

        fn inputs(&self) -> &[TensorSpec] {
            &self.1
        }

        fn outputs(&self) -> &[TensorSpec] {
            &self.1
        }

        fn placement(&self) -> Arc<Placement> {
            Arc::new(Placement::on_cpu("fp32", None))
        }

        fn run(&self, _: &mut Workspace, calls: &[&[Tensor]], _: &[bool]) -> Result<BatchResult, EngineError> {
            let made = calls.iter().map(|call| Ok(vec![self.0(call[0].shape[0], call[0].to_f32())?]));
            Ok(BatchResult { outputs: made.collect::<Result<_, _>>()?, ..BatchResult::default() })
        }
    }

    fn of(run: impl Fn(usize, Vec<f32>) -> Result<Tensor, EngineError> + Send + Sync) -> BatchAxis {
        let port = TensorSpec { name: "x".into(), datatype: Datatype::Fp32, shape: vec![None, Some(3)] };
        find(&Rows(run, vec![port]), None, Some(&BatchTrial::Here))
    }

    fn why(run: impl Fn(usize, Vec<f32>) -> Result<Tensor, EngineError> + Send + Sync) -> String {
        match of(run) {
            BatchAxis::NotShown(reason) => reason,
            axis => panic!("{axis}"),
        }
    }

    fn y(shape: &[usize], numbers: &[f32]) -> Result<Tensor, EngineError> {
        Ok(Tensor::f32("y", shape, numbers))
    }

    #[test]
    fn rows_that_meet_are_told_from_rows_that_do_not() {
        let doubled = |x: &[f32]| x.iter().map(|x| 2.0 * x).collect::<Vec<_>>();
        assert_eq!(of(|rows, x| y(&[rows, 3], &doubled(&x))), BatchAxis::Shown);
        // a sum in another order is the same answer
        assert_eq!(of(|rows, x| y(&[rows, 3], &x.iter().map(|x| x + rows as f32 * 1e-6).collect::<Vec<_>>())), BatchAxis::Shown);
        let mean = |x: &[f32]| x.iter().sum::<f32>() / x.len() as f32;
        let less_mean = why(|rows, x| y(&[rows, 3], &x.iter().map(|value| value - mean(&x)).collect::<Vec<_>>()));
        assert!(less_mean.starts_with("row 0 of a batch of 2 is not what it is alone: output y has "), "{less_mean}");
        // only a third row is another
        let of_three = why(|rows, x| y(&[rows, 3], &x.iter().map(|x| x * if rows == 3 { 1.1 } else { 1.0 }).collect::<Vec<_>>()));
        assert!(of_three.starts_with("row 0 of a batch of 3 is not"), "{of_three}");
        // scaled to 8 bits by the largest of a batch
        let quantized = why(|rows, x| {
            let step = x.iter().fold(0_f32, |most, x| most.max(x.abs())) / 127.0;
            y(&[rows, 3], &x.iter().map(|x| (x / step).round() * step).collect::<Vec<_>>())
        });
        assert!(quantized.starts_with("row 0 of a batch of 2 is not"), "{quantized}");
    }

    #[test]
    fn what_shows_nothing_is_not_joined() {
        assert_eq!(why(|rows, x| y(&[3, rows], &x)), "a batch of 2 rows: output y: has the shape [3, 2] for a batch of 2 rows");
        assert_eq!(why(|_, _| y(&[1, 3], &[1.0; 3])), ALIKE);
        let refused = why(|_, _| Err(EngineError::input("x", "is too small")));
        assert_eq!(refused, "a generated row is refused: x: is too small");
        let one_alone = why(|rows, x| {
            assert_eq!(rows, 1, "a batch");
            y(&[rows, 3], &x)
        });
        assert_eq!(one_alone, "a batch of 2 rows: it gave up");
        let slow = why(|rows, x| {
            std::thread::sleep(std::time::Duration::from_nanos(LONGEST_NS));
            y(&[rows, 3], &x)
        });
        assert!(slow.starts_with("a row takes ") && slow.ends_with(" ms, too long to try batches"), "{slow}");
    }

    fn read(path: &Path, backend: Backend) -> Model {
        let options = ModelOptions { backend, batch_trial: Some(BatchTrial::Here), ..ModelOptions::default() };
        Model::read(path, &options).unwrap()
    }

    #[test]
    fn calls_of_classical_models_run_together() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lapwing-tabular/tests/golden");
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut apart = Vec::new();
        let mut joined = 0;
        for path in entries.filter(|path| path.extension().is_some_and(|extension| extension == "onnx")) {
            match read(&path, Backend::Tabular).batch_axis() {
                BatchAxis::Shown => joined += 1,
                other => apart.push(format!("{}: {other}", path.display())),
            }
        }
        // whose columns are words, of which a generated row has none
        let of_words = ["columns_onehot_boosting", "ordinal_tree"];
        apart.retain(|said: &String| !(of_words.iter().any(|name| said.contains(name)) && said.ends_with(ALIKE)));
        assert!(joined >= 25 && apart.is_empty(), "{joined}\n{}", apart.join("\n"));
    }

    #[test]
    fn files_say_which_axis_is_open() {
        let fixture = |name: &str| {
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans");
            read(&folder.join(format!("{name}.onnx")), Backend::Auto)
        };
        let axes = ["0001", "refused-conv", "refused-fixed-conv"].map(|name| fixture(name).batch_axis().to_string());
        assert_eq!(axes[..2], ["the first, by the plan", "the first: rows of a batch answer as they do alone"]);
        assert!(axes[2].starts_with("none: input ") && axes[2].ends_with(" has no open first axis"), "{}", axes[2]);
    }
}
