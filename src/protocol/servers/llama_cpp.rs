//! llama.cpp server: `timings` in the body of every route, the OpenAI ones too. It says nothing of its queue.

use super::row::{Carrier, Row, Says, Scale, US};
use crate::ledger::{Phase, Server, Unit};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::LlamaCpp, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    // no value where nothing was counted: null
    row(Carrier::Body("timings.prompt_ms"), Says::Phase(Phase::Prefill), Scale::Ms).rounded(US),
    row(Carrier::Body("timings.predicted_ms"), Says::Phase(Phase::Decode), Scale::Ms).rounded(US),
    // what the cache held, and what was read: together the prompt
    row(Carrier::Body("timings.cache_n"), Says::Work(Unit::InputToken), Scale::Count).adds_up(),
    row(Carrier::Body("timings.prompt_n"), Says::Work(Unit::InputToken), Scale::Count).adds_up(),
    row(Carrier::Body("timings.predicted_n"), Says::Work(Unit::OutputToken), Scale::Count),
    // sums over all requests; nothing counts the requests
    row(Carrier::Metric("llamacpp:prompt_seconds_total"), Says::Phase(Phase::Prefill), Scale::S),
    row(Carrier::Metric("llamacpp:tokens_predicted_seconds_total"), Says::Phase(Phase::Decode), Scale::S),
    row(Carrier::Metric("llamacpp:prompt_tokens_total"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::Metric("llamacpp:tokens_predicted_total"), Says::Work(Unit::OutputToken), Scale::Count),
    row(Carrier::Metric("llamacpp:n_busy_slots_per_decode"), Says::BatchSize, Scale::Count),
    row(Carrier::Metric("llamacpp:requests_processing"), Says::Running, Scale::Count),
    row(Carrier::Metric("llamacpp:requests_deferred"), Says::Waiting, Scale::Count),
];
