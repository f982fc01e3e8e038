//! Decides on the request path which bodies to keep for a tokenizer, and which table entries to keep with them.

use super::super::config::Config;
use super::super::detect::Family;
use super::super::families::spec;
use super::texts::Texts;
use lapwing_ledger::{Prompt, PromptBody, PromptBudget};

/// The memory budget of all kept bodies, in bytes.
const ROOM: usize = 64 * 1024 * 1024;

/// Which bodies are kept.
#[derive(Debug)]
pub(crate) struct PromptKeeper {
    room: PromptBudget,
    /// Models with a tokenizer, in the order of the configuration.
    tokenizers: Vec<String>,
    /// Models whose cost is known, in the order of the configuration.
    costs: Vec<String>,
    /// Whether requests contain texts: by [`Family`], then by rule.
    has_texts: Vec<bool>,
}

impl PromptKeeper {
    /// `None` if no tokenizer is configured; then nothing is kept.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        if config.tokenizers.is_empty() {
            return None;
        }
        Some(Self {
            room: PromptBudget::new(ROOM),
            tokenizers: config.tokenizers.keys().cloned().collect(),
            costs: config.flops.keys().cloned().collect(),
            has_texts: texts(config).map(|texts| texts.is_some()).collect(),
        })
    }

    /// An empty body for a request of the protocol at `at`, if it is to be kept: by [`Family`], then by rule.
    pub(crate) fn body(&self, at: usize) -> Option<PromptBody> {
        self.has_texts.get(at).is_some_and(|has| *has).then(|| PromptBody::new(&self.room))
    }

    /// The body with what is needed to count its tokens; `None` if the model has no tokenizer.
    pub(crate) fn prompt(&self, body: PromptBody, at: usize, model: Option<&str>) -> Option<Prompt> {
        let tokenizer = find(&self.tokenizers, model)?;
        let texts = u16::try_from(at).ok()?;
        Some(Prompt { body, texts, tokenizer, cost: find(&self.costs, model) })
    }
}

/// The index of the model's own entry, or of `*`.
fn find(names: &[String], model: Option<&str>) -> Option<u16> {
    let find = |name: &str| names.iter().position(|own| own == name);
    u16::try_from(model.and_then(find).or_else(|| find("*"))?).ok()
}

/// Where texts are: by [`Family`], then by rule.
pub(crate) fn texts(config: &Config) -> impl Iterator<Item = Option<Texts>> {
    Family::ALL.iter().map(|family| Texts::of(spec(*family))).chain(config.custom.iter().map(Texts::of_rule))
}
