//! Ollama: fields of the last object of its own routes; nothing on `/v1`, no metrics, no spans.

use super::row::{Carrier, Row, Says, Scale};
use crate::ledger::{Phase, Server, Stage, Unit};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::Ollama, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    // waiting for a runner, and loading the model where it was not loaded
    row(Carrier::Body("load_duration"), Says::Stage(Stage::Queue), Scale::Ns),
    row(Carrier::Body("prompt_eval_duration"), Says::Phase(Phase::Prefill), Scale::Ns),
    row(Carrier::Body("eval_duration"), Says::Phase(Phase::Decode), Scale::Ns),
    // embeddings have no other part
    row(Carrier::Body("total_duration"), Says::Total, Scale::Ns).rest_is_forward(),
    row(Carrier::Body("prompt_eval_count"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::Body("eval_count"), Says::Work(Unit::OutputToken), Scale::Count),
];
