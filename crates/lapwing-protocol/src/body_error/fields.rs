//! The members of a JSON document that say that the request failed, and what makes them say so.
//!
//! `null`, `false`, an empty text, an empty object or a number are no errors: legal answers have such members (`"error": null` of
//! the Responses API, an error of estimation). An answer of several rows or results is a failure only if every row of it is:
//! a partial one did what it could, and its rows say the rest.

use super::super::tag::{ErrorField, Tag, TagValue};

/// The members that are watched in every answer of JSON of which anything is read.
pub(crate) const MEMBERS: &[(&str, Tag)] = &[
    ("error", Tag::Error(ErrorField::Error)),
    ("error.message", Tag::Error(ErrorField::Inside)),
    ("error.msg", Tag::Error(ErrorField::Inside)),
    ("error.code", Tag::Error(ErrorField::Inside)),
    ("error.type", Tag::Error(ErrorField::Inside)),
    ("object", Tag::Error(ErrorField::Object)),
    ("type", Tag::Error(ErrorField::Type)),
];

/// Further members that are watched in answers of which nothing else is read.
pub(crate) const WHOLE: &[(&str, Tag)] = &[
    ("code", Tag::Error(ErrorField::Code)),
    ("message", Tag::Error(ErrorField::Message)),
    ("errors", Tag::Error(ErrorField::Errors)),
    ("data", Tag::Error(ErrorField::Data)),
    ("detail", Tag::Error(ErrorField::Detail)),
    ("detail[].msg", Tag::Error(ErrorField::Inside)),
    ("*", Tag::Error(ErrorField::Other)),
    ("[]", Tag::Error(ErrorField::Row)),
    ("[].error", Tag::Error(ErrorField::RowError)),
    ("[].error.message", Tag::Error(ErrorField::RowInside)),
    ("[].error.code", Tag::Error(ErrorField::RowInside)),
    ("[].error.type", Tag::Error(ErrorField::RowInside)),
    ("choices[].finish_reason", Tag::Error(ErrorField::Reason)),
];

/// Texts that mean that there was no error.
const NONE: [&[u8]; 5] = [b"none", b"null", b"ok", b"success", b"no error"];

/// Which members the document had.
mod seen {
    pub(crate) const CODE: u8 = 1;
    pub(crate) const TYPE: u8 = 2;
    pub(crate) const MESSAGE: u8 = 4;
    pub(crate) const ERRORS: u8 = 8;
    pub(crate) const DATA: u8 = 16;
    pub(crate) const DETAIL: u8 = 32;
    pub(crate) const OTHER: u8 = 64;
    /// An error of TorchServe.
    pub(crate) const TORCH_SERVE: u8 = CODE | TYPE | MESSAGE;
}

/// What is known about an answer's failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyErrors {
    has_failed: bool,
    /// Members of this document.
    seen: u8,
    row_failed: bool,
    rows: u32,
    failed_rows: u32,
}

impl BodyErrors {
    /// Whether the answer says that it failed.
    pub(crate) const fn has_failed(self) -> bool {
        self.has_failed
    }

    /// The answer says that it failed.
    pub(crate) const fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Reads a watched member.
    pub(crate) fn note(&mut self, field: ErrorField, value: TagValue<'_>) {
        use ErrorField as F;
        match field {
            F::Error => {
                self.has_failed |= is_error(value);
                self.seen |= seen::OTHER;
            }
            F::Inside => self.has_failed |= says_something(value),
            F::RowError => self.row_failed |= is_error(value),
            F::RowInside => self.row_failed |= says_something(value),
            F::Row => {
                self.rows = self.rows.saturating_add(1);
                self.failed_rows += u32::from(std::mem::take(&mut self.row_failed) && self.failed_rows < u32::MAX);
            }
            F::Object => {
                self.has_failed |= is(value, &[b"error"]);
                self.seen |= seen::OTHER;
            }
            F::Type => {
                self.has_failed |= is(value, &[b"error", b"response.failed", b"response.error"]);
                self.seen |= seen::OTHER | if matches!(value, TagValue::Text { .. }) { seen::TYPE } else { 0 };
            }
            F::Reason => self.has_failed |= is(value, &[b"error", b"abort"]),
            F::Status => self.has_failed |= is(value, &[b"failed"]),
            F::Code => {
                let is_code = matches!(value, TagValue::Number(400.0..600.0));
                self.seen |= seen::OTHER | if is_code { seen::CODE } else { 0 };
            }
            F::Message => self.seen |= seen::OTHER | if says_something(value) { seen::MESSAGE } else { 0 },
            F::Errors => self.seen |= seen::OTHER | if matches!(value, TagValue::List(1..)) { seen::ERRORS } else { 0 },
            F::Data => self.seen |= seen::OTHER | seen::DATA,
            F::Detail => self.seen |= if says_something(value) { seen::DETAIL } else { 0 },
            F::Other => self.seen |= seen::OTHER,
        }
    }

    /// Ends a document. Only one that is the whole answer is judged by what it lacks: an event of a stream may well be a detail.
    pub(crate) fn end_document(&mut self, is_whole: bool) {
        let Self { seen, rows, failed_rows, .. } = *self;
        self.has_failed |= is_whole && Self::lacks_all_else(seen, rows, failed_rows);
        *self = Self { has_failed: self.has_failed, ..Self::default() };
    }

    const fn lacks_all_else(seen: u8, rows: u32, failed_rows: u32) -> bool {
        seen & seen::TORCH_SERVE == seen::TORCH_SERVE
            || seen & (seen::ERRORS | seen::DATA) == seen::ERRORS
            || seen & (seen::DETAIL | seen::OTHER) == seen::DETAIL
            || (rows > 0 && rows == failed_rows)
    }
}

fn is(value: TagValue<'_>, words: &[&[u8]]) -> bool {
    matches!(value, TagValue::Text { head, .. } if words.contains(&head))
}

/// Whether the value of `error` is an error by itself. An object is one by what it has inside.
fn is_error(value: TagValue<'_>) -> bool {
    match value {
        TagValue::Bool(is_true) => is_true,
        TagValue::Text { .. } => says_something(value),
        _ => false,
    }
}

/// Whether a value is a text that names something, or a number but zero.
fn says_something(value: TagValue<'_>) -> bool {
    match value {
        TagValue::Text { head, bytes } => bytes > 0 && !NONE.iter().any(|none| head.eq_ignore_ascii_case(none)),
        TagValue::Number(n) => n != 0.0,
        _ => false,
    }
}
