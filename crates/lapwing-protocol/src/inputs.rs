//! Counts rows and input tokens of texts, token ids and lists of them. A list of texts has one row per text; a list of token ids
//! is one row; a list of lists has one row per list.

use super::tag::TagValue;
use lapwing_ledger::Basis;

/// The inputs of one request so far.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    rows: Option<u64>,
    /// Bytes of text that the model reads.
    text_bytes: u64,
    texts: u64,
    /// Bytes of text that it reads again with every row.
    query_bytes: u64,
    /// Counts of the list that is being read: texts and groups, numbers, lists, and elements of these lists.
    items: u64,
    figures: u64,
    lists: u64,
    nested: u64,
    /// Token ids.
    ids: u64,
}

impl Inputs {
    /// Adds text that the model reads.
    pub(crate) const fn text(&mut self, bytes: u64) {
        self.text_bytes = self.text_bytes.saturating_add(bytes);
        self.texts += 1;
    }

    /// Adds text that the model reads with every row.
    pub(crate) const fn query(&mut self, bytes: u64) {
        self.query_bytes = self.query_bytes.saturating_add(bytes);
    }

    /// Records an element of the list of inputs.
    pub(crate) const fn item(&mut self, seen: TagValue<'_>) {
        match seen {
            TagValue::Number(_) => self.figures += 1,
            TagValue::Numbers(n) => self.figures = self.figures.saturating_add(n),
            TagValue::Text { bytes, .. } => {
                self.items += 1;
                self.text(bytes);
            }
            TagValue::List(len) => {
                self.lists += 1;
                self.nested = self.nested.saturating_add(len);
            }
            TagValue::Group | TagValue::Bool(_) => self.items += 1,
        }
    }

    /// Records the input itself, or the end of the list of inputs.
    pub(crate) fn end(&mut self, seen: TagValue<'_>) {
        match seen {
            TagValue::Text { bytes, .. } => {
                self.text(bytes);
                self.add_rows(1);
            }
            TagValue::List(_) if self.figures > 0 => {
                // token ids, perhaps mixed with texts: one input
                self.ids = self.ids.saturating_add(self.figures);
                self.add_rows(1);
            }
            TagValue::List(len) => {
                if self.items == 0 && self.texts == 0 {
                    self.ids = self.ids.saturating_add(self.nested);
                }
                self.add_rows(len);
            }
            TagValue::Number(_) | TagValue::Numbers(_) | TagValue::Group | TagValue::Bool(_) => self.add_rows(1),
        }
        (self.items, self.figures, self.lists, self.nested) = (0, 0, 0, 0);
    }

    /// Like [`Self::end`], for protocols in which two texts in a list are one input.
    pub(crate) fn end_pairs(&mut self, seen: TagValue<'_>) {
        match seen {
            TagValue::List(1 | 2) if self.lists == 0 && self.items > 0 => {
                self.add_rows(1);
                (self.items, self.figures, self.lists, self.nested) = (0, 0, 0, 0);
            }
            _ => self.end(seen),
        }
    }

    fn add_rows(&mut self, n: u64) {
        self.rows = Some(self.rows.unwrap_or(0).saturating_add(n));
    }

    /// The number of inputs, if any was seen.
    pub(crate) const fn rows(&self) -> Option<u64> {
        self.rows
    }

    /// The number of tokens that the model reads, and its basis: ids are counted, texts estimated.
    pub(crate) fn tokens(&self, bytes_per_token: u64) -> Option<(u64, Basis)> {
        let again = self.query_bytes.saturating_mul(self.texts.max(1));
        let bytes = self.text_bytes.saturating_add(again);
        if bytes == 0 {
            return (self.ids > 0).then_some((self.ids, Basis::Counted));
        }
        Some((self.ids.saturating_add(bytes.div_ceil(bytes_per_token)), Basis::Estimated))
    }
}
