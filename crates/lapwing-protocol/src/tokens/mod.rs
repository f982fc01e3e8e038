//! Counts input tokens with a model's own `tokenizer.json` if the server does not report them. Runs off the request path, on
//! bodies that were kept for it. It is slow by nature (some megabytes per second), so the caller decides when there is time for
//! it.

mod prompt_keeper;
mod texts;

use std::fmt;

pub(crate) use prompt_keeper::PromptKeeper;
use serde_json::Value;
use texts::Texts;

use super::config::{Config, Flops};
use super::tokenizer::{ModelError, ModelTokenizer};
use lapwing_ledger::{Basis, Prompt, Unit, Work};

/// A configured tokenizer that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("protocol.tokenizers.{model}: {file}: {cause}")]
pub struct TokenizerError {
    /// The model, or `*`.
    pub model: String,
    /// The file.
    pub file: String,
    /// The cause.
    pub cause: ModelError,
}

/// All configured tokenizers.
pub struct Tokenizers {
    models: Vec<ModelTokenizer>,
    texts: Vec<Option<Texts>>,
    costs: Vec<Flops>,
}

impl fmt::Debug for Tokenizers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // a tokenizer holds its whole vocabulary
        f.debug_struct("Tokenizers").field("models", &self.models.len()).finish_non_exhaustive()
    }
}

impl Tokenizers {
    /// Reads every file.
    ///
    /// # Errors
    ///
    /// For the first file that cannot be read or is not a tokenizer.
    pub fn load(config: &Config) -> Result<Self, TokenizerError> {
        let load = |(model, file): (&String, &std::path::PathBuf)| {
            ModelTokenizer::load(file).map_err(|cause| TokenizerError {
                model: model.clone(),
                file: file.display().to_string(),
                cause,
            })
        };
        Ok(Self {
            models: config.tokenizers.iter().map(load).collect::<Result<_, _>>()?,
            texts: prompt_keeper::texts(config).collect(),
            costs: config.flops.values().copied().collect(),
        })
    }

    /// The number of tokens that the model reads; `None` if the body is not JSON, contains no texts, or cannot be tokenized.
    #[must_use]
    pub fn count(&self, prompt: &Prompt) -> Option<u64> {
        let model = self.models.get(usize::from(prompt.tokenizer))?;
        let texts = self.texts.get(usize::from(prompt.texts))?.as_ref()?;
        let document: Value = serde_json::from_slice(prompt.body.bytes()).ok()?;
        let found = texts.find(&document);
        if found.inputs.is_empty() {
            return None;
        }
        let count = |sum: u64, input| Some(sum.saturating_add(model.count(input, texts.whole)?));
        found.inputs.into_iter().try_fold(found.ids, count)
    }

    /// Sets the prompt's tokens in `work`, and the FLOPs again if they depend on them. Returns false and changes nothing if the
    /// tokens cannot be counted.
    pub fn complete(&self, prompt: &Prompt, work: &mut Work) -> bool {
        let Some(tokens) = self.count(prompt) else { return false };
        work.set(Unit::InputToken, tokens, Basis::Counted);
        let cost = prompt.cost.and_then(|at| self.costs.get(usize::from(at)));
        if let Some((flops, basis)) = cost.and_then(|cost| cost.of(work)) {
            work.set(Unit::Flop, flops, basis);
        }
        true
    }
}

#[cfg(test)]
mod tests;
