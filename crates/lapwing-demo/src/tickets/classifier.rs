//! The fitted classifier: tokenizer, model file and calibration, all made from seeds when the demo starts (some 100 ms).
//!
//! The encoder's weights stay as they were drawn. The head is a linear discriminant: the mean vector of each team's training
//! tickets, and one variance for all. The calibration is fitted to other tickets than the head.

use lapwing_model::{Model, ModelOptions, Workspace};
use lapwing_onnx::tensor::Tensor;

use super::calibration::Calibrator;
use super::corpus::{self, CLASSES, Ticket};
use super::encoder::{self, Head, IDS, MASK, WIDTH};
use super::tokenizer::{Tokenizer, Tokens};

/// The seed of training tickets, and how many there are: these for the head, then those for the calibration.
const TRAINING_SEED: u64 = 11;
const HEAD_TICKETS: usize = 256;
const CALIBRATION_TICKETS: usize = 256;

/// Bytes of stack to run the model with: some of the engine's kernels need 2 MiB in a build without optimisations.
const STACK: usize = 32 << 20;

/// Why the classifier could not be built: a bug in the demo.
pub(crate) type FitError = Box<dyn std::error::Error + Send + Sync>;

/// Classifies tickets.
#[derive(Debug)]
pub(crate) struct Classifier {
    pub(crate) tokenizer: Tokenizer,
    /// Token ids to logits.
    pub(crate) model: Model,
    pub(crate) calibrator: Calibrator,
}

impl Classifier {
    /// Builds and fits everything, on its own thread with a large enough stack.
    ///
    /// # Errors
    ///
    /// An error of the tokenizer or the engine.
    pub(crate) fn fit() -> Result<Self, FitError> {
        on_large_stack(Self::fit_here)?
    }

    fn fit_here() -> Result<Self, FitError> {
        let tokenizer = Tokenizer::new()?;
        let tickets = corpus::tickets(TRAINING_SEED, HEAD_TICKETS + CALIBRATION_TICKETS);
        let texts: Vec<&str> = tickets.iter().map(|ticket| ticket.text.as_str()).collect();
        let encoder = Model::parse(&encoder::onnx(tokenizer.vocabulary(), None), &ModelOptions::default())?;
        let mut inputs = tensors(&tokenizer.tokenize(&texts)?);
        encoder.accept(&mut inputs)?;
        let ran = encoder.run(&mut Workspace::default(), &[&inputs])?;
        let embeddings = ran.outputs.first().and_then(|outputs| outputs.first()).map(Tensor::to_f32).unwrap_or_default();
        let (fitted, others) = embeddings.split_at_checked(HEAD_TICKETS * WIDTH).ok_or("the encoder returned too few rows")?;
        let head = head(fitted, &tickets);
        let logits: Vec<f32> = others.chunks_exact(WIDTH).flat_map(|row| head.logits(row)).collect();
        let calibrator = Calibrator::fit(&logits, tickets[HEAD_TICKETS..].iter().map(|ticket| ticket.team));
        let model = Model::parse(&encoder::onnx(tokenizer.vocabulary(), Some(&head)), &ModelOptions::default())?;
        Ok(Self { tokenizer, model, calibrator })
    }
}

/// Runs `work` on a thread with a stack of [`STACK`] bytes.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, FitError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("demo-fit".to_owned()).stack_size(STACK).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| "the thread that fits the model panicked".into())
    })
}

/// The inputs of a call.
pub(crate) fn tensors(tokens: &Tokens) -> Vec<Tensor> {
    let shape = [tokens.rows, tokens.length];
    vec![Tensor::i64(IDS, &shape, &tokens.ids), Tensor::i64(MASK, &shape, &tokens.mask)]
}

/// Linear discriminant analysis with one variance for all teams and directions.
fn head(embeddings: &[f32], tickets: &[Ticket]) -> Head {
    let mut means = vec![0.0_f32; CLASSES * WIDTH];
    let mut counts = [0.0_f32; CLASSES];
    let rows = || embeddings.chunks_exact(WIDTH).zip(tickets);
    for (row, ticket) in rows() {
        counts[ticket.team] += 1.0;
        let mean = &mut means[ticket.team * WIDTH..][..WIDTH];
        mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += x);
    }
    for (mean, count) in means.chunks_exact_mut(WIDTH).zip(counts) {
        mean.iter_mut().for_each(|x| *x /= count.max(1.0));
    }
    let squares = |row: &[f32], mean: &[f32]| row.iter().zip(mean).map(|(x, mean)| (x - mean).powi(2)).sum::<f32>();
    let apart: f32 = rows().map(|(row, ticket)| squares(row, &means[ticket.team * WIDTH..][..WIDTH])).sum();
    let variance = (apart / embeddings.len().max(1) as f32).max(1e-9);
    let mut biases = [0.0; CLASSES];
    for (bias, mean) in biases.iter_mut().zip(means.chunks_exact(WIDTH)) {
        *bias = -0.5 * mean.iter().map(|x| x * x).sum::<f32>() / variance;
    }
    Head { weights: means.into_iter().map(|x| x / variance).collect(), biases }
}

impl Head {
    /// The outputs of the model's last layer.
    fn logits(&self, embedding: &[f32]) -> [f32; CLASSES] {
        let mut logits = self.biases;
        for (logit, weights) in logits.iter_mut().zip(self.weights.chunks_exact(WIDTH)) {
            *logit += weights.iter().zip(embedding).map(|(weight, x)| weight * x).sum::<f32>();
        }
        logits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_that_it_has_not_seen_are_classified_by_the_engines_plan() {
        let classifier = Classifier::fit().unwrap();
        assert_eq!((classifier.model.executor().name(), classifier.model.unsupported()), ("plan", None));
        let tickets = corpus::tickets(99, 200);
        let texts: Vec<&str> = tickets.iter().map(|ticket| ticket.text.as_str()).collect();
        let mut inputs = tensors(&classifier.tokenizer.tokenize(&texts).unwrap());
        classifier.model.accept(&mut inputs).unwrap();
        let model = &classifier.model;
        let run = || model.run(&mut Workspace::default(), &[&inputs]).unwrap().outputs[0][0].to_f32();
        let logits = on_large_stack(run).unwrap();
        let mut right = 0;
        let mut sure = 0.0;
        for (row, ticket) in logits.as_chunks::<CLASSES>().0.iter().zip(&tickets) {
            let probabilities = classifier.calibrator.probabilities(row);
            let best = (0..CLASSES).max_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b])).unwrap();
            right += usize::from(best == ticket.team);
            sure += probabilities[best];
        }
        let (accuracy, confidence) = (right as f32 / 200.0, sure / 200.0);
        assert!(accuracy >= 0.8, "{accuracy}");
        assert!((accuracy - confidence).abs() < 0.1, "calibrated: right {accuracy}, sure {confidence}");
    }
}
