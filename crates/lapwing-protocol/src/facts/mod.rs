//! Accumulates what is read of one exchange: model, work, token timing, and the server's reports. Fixed size; only a streamed
//! answer with content allocates.

mod answer;
mod asked;
mod stateful;
mod timeout;

use arrayvec::ArrayVec;

use self::stateful::KeptState;
pub(crate) use self::stateful::is_stateful_by_head;
use self::timeout::TimeoutParameter;
use crate::body_error::BodyErrors;
use crate::config::{Flops, Side};
use crate::inputs::Inputs;
use crate::pace::TokenPace;
use crate::row_shapes::{Chats, InputTensor, Table};
use crate::servers::{Quantity, ReportedValues};
use crate::tag::{Tag, TagValue};
use lapwing_ledger::{Basis, Ledger, ReportPlace, Unit, Work};

/// How many bytes of a model's name are kept.
const NAME_BYTES: usize = 128;
/// Bytes of text per token if nothing counts tokens: right to an order of magnitude for English and for code.
const BYTES_PER_TOKEN: u64 = 4;

/// What is known so far.
#[derive(Debug, Default)]
pub(crate) struct ExchangeFacts {
    model: ArrayVec<u8, NAME_BYTES>,
    /// The model's name is of the message of the request that is being read: it may name another one, and parsers take the last.
    may_rename: bool,
    work: Work,
    inputs: Inputs,
    rows: Option<u64>,
    columns: Option<u64>,
    elements: Option<u64>,
    tensor: InputTensor,
    /// The most rows that a tensor of this message has.
    message_rows: Option<u64>,
    /// The side whose body is being read. Both may arrive at once.
    side: Side,
    /// The units that this document already gave an amount of, by side.
    units_seen: [u8; 2],
    /// How many sequences the request asks for per row.
    asked_sequences: u64,
    /// How many sequences the answer was seen to have.
    seen_sequences: u64,
    output_bytes: u64,
    /// Whether the answer consists of several documents.
    streams: bool,
    /// Whether this document of the answer brought content.
    content: bool,
    /// Whether this document of the answer is the last of one sequence.
    done: bool,
    /// How many sequences ended.
    ended_sequences: u64,
    /// Whether the answer declared itself complete.
    is_complete: bool,
    timeout: TimeoutParameter,
    kept: KeptState,
    pace: TokenPace,
    errors: BodyErrors,
    reported: ReportedValues,
    /// The parts of the input tokens, by [`super::tag::InputPart`].
    input_parts: [Option<u64>; 3],
    total_tokens: Option<u64>,
    chats: Chats,
    table: Option<Table>,
    /// How many rows the answer has.
    predictions: Option<u64>,
    /// How many documents the request has.
    documents: u64,
    /// How many tokens the answer's ids are.
    output_ids: u64,
}

impl ExchangeFacts {
    /// Records a name of the model that the head contains.
    pub(crate) fn name_model(&mut self, name: &[u8]) {
        if self.model.is_empty() {
            self.model.extend(name.iter().copied().take(NAME_BYTES));
        }
    }

    /// The model's name, as far as it is valid text.
    pub(crate) fn model(&self) -> Option<&str> {
        let known = match std::str::from_utf8(&self.model) {
            Ok(name) => name,
            // cut in the middle of a character
            Err(error) => std::str::from_utf8(self.model.get(..error.valid_up_to())?).ok()?,
        };
        Some(known).filter(|name| !name.is_empty())
    }

    /// Switches to the body of this side.
    pub(crate) const fn read(&mut self, side: Side) {
        self.side = side;
    }

    /// Marks the answer as streamed: several documents, each with its own time.
    pub(crate) const fn streams(&mut self) {
        self.streams = true;
    }

    /// Records that the answer declared itself complete.
    pub(crate) const fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Whether the answer declared itself complete. One that says that it failed did.
    pub(crate) const fn is_complete(&self) -> bool {
        self.is_complete || self.errors.has_failed()
    }

    /// What the answer says about its failure.
    pub(crate) const fn errors(&mut self) -> &mut BodyErrors {
        &mut self.errors
    }

    /// How long the request may take, as its body says.
    pub(crate) const fn timeout(&self) -> &TimeoutParameter {
        &self.timeout
    }

    /// What the request says of what the server keeps.
    pub(crate) const fn kept(&self) -> &KeptState {
        &self.kept
    }

    /// Records a watched value.
    pub(crate) fn note(&mut self, tag: Tag, seen: TagValue<'_>) {
        match (tag, seen) {
            (Tag::Model, TagValue::Text { head, .. }) => {
                if self.may_rename {
                    self.model.clear();
                }
                self.may_rename = self.side == Side::Request && self.model.is_empty();
                self.name_model(head);
            }
            (Tag::Rows, TagValue::List(len)) => self.add_rows(len),
            (Tag::Rows, _) => {
                self.add_rows(1);
                self.note(Tag::Text, seen);
            }
            (Tag::Column, seen) => {
                let len = if let TagValue::List(len) = seen { len } else { 1 };
                self.columns = self.columns.max(Some(len));
            }
            (Tag::Inputs, seen) => self.inputs.end(seen),
            (Tag::Pairs, seen) => self.inputs.end_pairs(seen),
            (Tag::Input, seen) => self.inputs.item(seen),
            (Tag::Text, TagValue::Text { bytes, .. }) => self.inputs.text(bytes),
            (Tag::Query, TagValue::Text { bytes, .. }) => self.inputs.query(bytes),
            (Tag::InputName, TagValue::Text { head, .. }) => self.tensor.is_token_ids = head == b"input_ids",
            (Tag::Dim, seen) => self.tensor.dim(seen.count()),
            (Tag::Tensor, TagValue::Group) => self.end_tensor(),
            (Tag::Message, TagValue::List(_)) => self.chats.lists += 1,
            (Tag::Message, _) => self.chats.has_messages = true,
            (Tag::Records, TagValue::List(len)) if self.rows.is_none() => self.rows = Some(len),
            (Tag::InputPart(part), seen) => {
                if let Some(tokens) = seen.count() {
                    self.input_parts[part as usize] = Some(tokens);
                }
            }
            (Tag::TotalTokens, seen) => self.total_tokens = seen.count().or(self.total_tokens),
            (Tag::AudioSeconds, seen) => {
                if let Some(ms) = seen.milliseconds() {
                    self.work.set(Unit::AudioMs, ms, Basis::Reported);
                }
            }
            (Tag::Predictions, TagValue::List(len)) => self.predictions = Some(len),
            (Tag::Sequences, seen) => self.asked_sequences = seen.count().unwrap_or(0),
            (Tag::Sequence, seen) => {
                self.seen_sequences = self.seen_sequences.max(seen.count().map_or(0, |index| index.saturating_add(1)));
            }
            (Tag::Amount(unit, basis) | Tag::Tokens(unit, basis), TagValue::Number(_)) => {
                if let Some(amount) = seen.count() {
                    self.add(unit, amount, basis);
                }
            }
            (Tag::Amount(unit, _) | Tag::Tokens(unit, _), TagValue::List(len)) => self.add(unit, len, Basis::Counted),
            (Tag::Amount(unit, _), TagValue::Text { .. } | TagValue::Group) => self.add(unit, 1, Basis::Counted),
            (Tag::Tokens(Unit::OutputToken, _), TagValue::Text { bytes: 1.., .. }) => self.wrote(seen),
            (Tag::Tokens(..), TagValue::Text { bytes, .. }) => self.inputs.text(bytes),
            (Tag::Report(row), TagValue::Number(n)) => {
                if let Some(tokens) = seen.count().filter(|_| row.quantity == Quantity::Work(Unit::OutputToken)) {
                    self.pace.so_far(tokens);
                }
                self.reported.note(row, n);
            }
            (Tag::Report(row), TagValue::Text { head, .. }) => {
                if let Ok(text) = std::str::from_utf8(head) {
                    self.reported.note_text(row, text);
                }
            }
            _ => self.note_answer(tag, seen),
        }
    }

    /// Records the value of a header or trailer field. It replaces the value of an earlier field with the same meaning.
    pub(crate) fn note_field(&mut self, tag: Tag, seen: TagValue<'_>) {
        match (tag, seen) {
            (Tag::Model, TagValue::Text { head, bytes: 1.. }) => {
                self.model.clear();
                self.name_model(head);
            }
            (Tag::Amount(unit, basis) | Tag::Tokens(unit, basis), TagValue::Number(_)) => {
                if let Some(amount) = seen.count() {
                    self.work.set(unit, amount, basis);
                }
            }
            _ => {}
        }
    }

    /// Ends a document, `at_ns` from the request's start. Amounts in the next document replace those of this one.
    pub(crate) fn end_document(&mut self, at_ns: u64) {
        let units_seen = std::mem::take(&mut self.units_seen[self.side as usize]);
        if self.side == Side::Response {
            if units_seen & (1 << Unit::OutputToken.index()) != 0
                && let Some((tokens, _)) = self.work.get(Unit::OutputToken)
            {
                self.pace.so_far(tokens);
            }
            self.errors.end_document(!self.streams);
        }
        self.documents += u64::from(self.side == Side::Request);
        self.end_message(at_ns);
    }

    /// Ends a message, `at_ns` from the request's start. Amounts in the next message are added to those of this one.
    pub(crate) fn end_message(&mut self, at_ns: u64) {
        if self.side == Side::Request {
            self.may_rename = false;
            if let Some(rows) = self.message_rows.take() {
                self.add_rows(rows);
            }
            return;
        }
        let has_content = std::mem::take(&mut self.content);
        self.pace.end_document(at_ns, has_content && self.streams);
        if std::mem::take(&mut self.done) {
            // each of several sequences has its own end
            self.ended_sequences += 1;
            self.is_complete |= self.ended_sequences >= self.sequences();
        }
    }

    /// Sets an amount that is not in a body.
    pub(crate) fn set(&mut self, unit: Unit, amount: u64, basis: Basis) {
        match unit {
            Unit::Row => self.rows = Some(amount),
            _ => self.work.set(unit, amount, basis),
        }
    }

    /// Ends a table of these many records, the first of which may look like a header. That of an answer has a record for each row.
    pub(crate) fn end_table(&mut self, (records, has_words_first): (u64, bool)) {
        match self.side {
            Side::Request => self.table = Some(Table { records, has_words_first }),
            Side::Response => self.predictions = Some(records),
        }
    }

    /// Adds a row for each document of the request, if nothing gives rows.
    pub(crate) fn add_row_each(&mut self) {
        if !self.has_rows() {
            self.add_rows(self.documents.max(1));
        }
    }

    /// Forgets everything but the model: what was read is only a part, and a part would be taken for the whole.
    pub(crate) fn forget(&mut self) {
        let model = std::mem::take(&mut self.model);
        *self = Self { model, side: self.side, streams: self.streams, ..Self::default() };
    }

    /// Adds `n` rows.
    pub(crate) fn add_rows(&mut self, n: u64) {
        self.rows = Some(self.rows.unwrap_or(0).saturating_add(n));
    }

    /// Whether a tensor was read.
    pub(crate) const fn has_tensors(&self) -> bool {
        self.elements.is_some()
    }

    /// Whether rows are known by now.
    pub(crate) fn has_rows(&self) -> bool {
        self.known_rows().is_some()
    }

    fn known_rows(&self) -> Option<u64> {
        self.rows
            .or(self.columns)
            .or(self.inputs.rows())
            .or(self.chats.rows())
            .or(self.table.as_ref().map(|table| table.rows(self.predictions)))
    }

    /// The number of sequences in the answer: one per row, or as many as were asked for or seen.
    fn sequences(&self) -> u64 {
        let asked = self.known_rows().unwrap_or(1).max(1).saturating_mul(self.asked_sequences.max(1));
        asked.max(self.seen_sequences)
    }

    fn add(&mut self, unit: Unit, amount: u64, basis: Basis) {
        let bit = 1 << unit.index();
        let units_seen = &mut self.units_seen[self.side as usize];
        let before = if *units_seen & bit == 0 { 0 } else { self.work.get(unit).map_or(0, |(amount, _)| amount) };
        *units_seen |= bit;
        self.work.set(unit, before.saturating_add(amount), basis);
    }

    fn wrote(&mut self, seen: TagValue<'_>) {
        if let TagValue::Text { bytes, .. } = seen {
            self.content |= self.side == Side::Response;
            self.output_bytes = self.output_bytes.saturating_add(bytes);
        }
    }

    fn end_tensor(&mut self) {
        let tensor = std::mem::take(&mut self.tensor);
        // a tensor without dimensions is one scalar
        self.message_rows = self.message_rows.max(Some(tensor.rows.unwrap_or(1)));
        let elements = tensor.elements.unwrap_or(1);
        if tensor.is_token_ids {
            self.add(Unit::InputToken, elements, Basis::Counted);
        }
        self.elements = Some(self.elements.unwrap_or(0).saturating_add(elements));
    }

    /// Writes what is known into the ledger. The primary unit is `primary`, or `otherwise` where nothing is known about that; `flops` is
    /// the model's cost, if it is known.
    pub(crate) fn write(&mut self, primary: Unit, otherwise: Option<Unit>, ledger: &mut Ledger, flops: Option<&Flops>) {
        if let Some(generation) = self.pace.take_generation() {
            ledger.generation = Some(generation);
        }
        std::mem::take(&mut self.reported).write(ReportPlace::Body, ledger);
        self.timeout.write(ledger);
        // first what the traffic itself shows; explicit reports of the server override it
        let work = &mut ledger.work;
        if let Some(rows) = self.known_rows() {
            work.set(Unit::Row, rows, Basis::Counted);
        }
        if let Some(elements) = self.elements {
            work.set(Unit::Element, elements, Basis::Counted);
        }
        if let Some((tokens, basis)) = self.inputs.tokens(BYTES_PER_TOKEN) {
            work.set(Unit::InputToken, tokens, basis);
        }
        match &ledger.generation {
            Some(generation) if generation.chunks > 0 => work.set(Unit::OutputToken, generation.chunks, Basis::Counted),
            _ if self.output_ids > 0 => {}
            _ if self.output_bytes > 0 => {
                work.set(Unit::OutputToken, self.output_bytes.div_ceil(BYTES_PER_TOKEN), Basis::Estimated);
            }
            _ => {}
        }
        if self.output_ids > 0 {
            work.set(Unit::OutputToken, self.output_ids, Basis::Counted);
        }
        for unit in Unit::ALL {
            if let Some((amount, basis)) = self.work.get(unit) {
                work.set(unit, amount, basis);
            }
        }
        if let Some(generation) = &mut ledger.generation {
            generation.hidden = self.pace.hidden(work.get(Unit::OutputToken).map(|(tokens, _)| tokens));
        }
        self.write_input_tokens(work);
        let primary = otherwise.filter(|_| work.get(primary).is_none()).unwrap_or(primary);
        if primary == Unit::OutputToken || work.get(Unit::OutputToken).is_some() {
            work.sequences = self.sequences();
        }
        if let Some(generation) = ledger.generation.as_mut().filter(|_| work.sequences > 1) {
            generation.is_of_many();
        }
        if Unit::ALL.into_iter().any(|unit| (unit != Unit::Byte || primary == unit) && work.get(unit).is_some()) {
            work.primary = Some(primary);
        }
        if let Some((flops, basis)) = flops.and_then(|flops| flops.of(work)) {
            work.set(Unit::Flop, flops, basis);
        }
    }
}

impl ExchangeFacts {
    /// Writes input tokens that the server reports in parts, or as a total of a route that writes nothing.
    fn write_input_tokens(&self, work: &mut Work) {
        let parts = self.input_parts.iter().flatten().copied().reduce(u64::saturating_add);
        let total = self.total_tokens.filter(|_| !work.is_reported_by_server(Unit::InputToken));
        if let Some(tokens) = parts.or(total) {
            work.set(Unit::InputToken, tokens, Basis::Reported);
        }
    }
}
