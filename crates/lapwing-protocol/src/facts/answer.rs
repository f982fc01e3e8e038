//! What an answer says about itself as it comes: content, reasoning, its end, its failure; and how long a request may take and what is kept of it.

use super::ExchangeFacts;
use crate::config::Side;
use crate::row_shapes::ends_stream;
use crate::tag::ErrorField;
use crate::tag::{Tag, TagValue};

impl ExchangeFacts {
    /// Records a watched value of an answer, or of a request its time and what is kept of it.
    pub(crate) fn note_answer(&mut self, tag: Tag, seen: TagValue<'_>) {
        match (tag, seen) {
            (Tag::Content, TagValue::Text { bytes: 1.., .. }) => self.wrote(seen),
            (Tag::WholeContent, TagValue::Text { bytes: 1.., .. }) if !self.streams => self.wrote(seen),
            (Tag::ContentIds, TagValue::List(len @ 1..)) => {
                self.content |= self.side == Side::Response;
                self.output_ids = self.output_ids.saturating_add(len);
            }
            (Tag::Output, TagValue::Text { head: b"text_output", .. }) => self.content = true,
            (Tag::Timeout, seen) => self.timeout.note(tag, seen),
            (Tag::ParameterName | Tag::ParameterValue, seen) => {
                self.timeout.note(tag, seen);
                self.kept.note(tag, seen);
            }
            (Tag::SequenceId | Tag::Predecessor | Tag::Stores, seen) => self.kept.note(tag, seen),
            (Tag::Done, TagValue::Bool(true) | TagValue::Text { .. }) => self.done = true,
            (Tag::Event, TagValue::Text { head, .. }) => {
                self.done |= ends_stream(head);
                self.pace.event(head);
                self.errors.note(ErrorField::Type, seen);
            }
            (Tag::Error(field), seen) => self.errors.note(field, seen),
            (Tag::Reasoning, TagValue::Text { bytes: 1.., .. }) => {
                self.pace.note(tag, seen);
                self.wrote(seen);
            }
            (Tag::HiddenTokens | Tag::RejectedTokens | Tag::Withholds(_) | Tag::Block | Tag::PieceTokens, seen) => {
                self.pace.note(tag, seen);
            }
            _ => {}
        }
    }
}
