//! The reply to a read as it comes: whole, or in elements that are kept each on its own.

use smallvec::SmallVec;

use super::command_class::ReadShape;
use super::figures::NotKept;
use super::kept::{KeptReplies, MAX_ANSWER, ReplyPlace};
use crate::name::CallName;
use crate::resp::ReplyValue;
use lapwing_ledger::Stamp;

/// A read that the store was asked.
#[derive(Debug)]
pub(crate) struct PendingRead {
    pub(crate) name: CallName,
    pub(crate) shape: ReadShape,
    pub(crate) places: Vec<ReplyPlace>,
    pub(crate) asked: Stamp,
    /// Whether nothing was asked before it that has no answer.
    pub(crate) was_first: bool,
    /// What would have been answered from memory, in `observe`.
    pub(crate) would_be: Option<Vec<u8>>,
}

/// What has come of the reply to the first call that has none.
#[derive(Debug, Default)]
pub(crate) struct CapturedReply {
    bytes: Vec<u8>,
    elements: SmallVec<[CapturedElement; 4]>,
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct CapturedElement {
    end: usize,
    is_null: bool,
}

impl CapturedReply {
    /// Takes more of it, unless it is too large.
    pub(crate) fn extend(&mut self, bytes: &[u8], most: usize) {
        self.is_over |= self.bytes.len() + bytes.len() > most;
        if self.is_over {
            self.clear_bytes();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn clear_bytes(&mut self) {
        (self.bytes, self.elements) = (Vec::new(), SmallVec::new());
    }

    /// An element has come, that ends so many bytes after what was taken.
    pub(crate) fn element(&mut self, after: usize, value: &ReplyValue<'_>) {
        if !self.is_over {
            self.elements.push(CapturedElement { end: self.bytes.len() + after, is_null: value.is_null });
        }
    }

    /// The next reply begins.
    pub(crate) fn restart(&mut self) {
        self.bytes.clear();
        self.elements.clear();
        self.is_over = false;
    }
}

impl PendingRead {
    /// How long a reply may be of which anything is kept.
    pub(crate) fn most(&self, kept: &KeptReplies) -> usize {
        // its line ends, and how long it is
        let one = kept.max_entry.saturating_add(32);
        let all = one.saturating_mul(self.places.len()).min(MAX_ANSWER.max(one));
        all.max(self.would_be.as_ref().map_or(0, |would_be| would_be.len() + 1))
    }

    /// Its reply has come.
    pub(crate) fn answered(self, reply: &CapturedReply, value: &ReplyValue<'_>, now: Stamp, kept: &mut KeptReplies) {
        if self.was_first {
            kept.figures.asked(self.name, now.since(self.asked));
        }
        if let Some(would_be) = self.would_be {
            kept.figures.differed += u64::from(reply.bytes != would_be);
            // as it would have been, it grows old
            return;
        }
        if value.is_error() {
            return kept.figures.refuse(NotKept::Error);
        }
        if reply.is_over {
            return kept.figures.refuse(NotKept::TooLarge);
        }
        if reply.bytes.first() == Some(&b'|') {
            return kept.figures.refuse(NotKept::Form);
        }
        if matches!(self.shape, ReadShape::Values | ReadShape::Fields) {
            return keep_elements(self.shape, self.places, reply, self.asked, kept);
        }
        let is_aggregate = matches!(value.kind, b'*' | b'%' | b'~');
        let is_zero = value.kind == b':' && value.text == b"0";
        let is_absent = value.is_null || value.nulls > 0 || is_aggregate && value.elements == 0 || is_zero;
        if is_absent && !kept.keeps_absent {
            return kept.figures.refuse(NotKept::Absent);
        }
        for place in self.places {
            kept.keep(place, &reply.bytes, self.asked);
        }
    }
}

fn keep_elements(shape: ReadShape, places: Vec<ReplyPlace>, reply: &CapturedReply, asked: Stamp, kept: &mut KeptReplies) {
    let begin = memchr::memchr(b'\n', &reply.bytes).map_or(0, |end| end + 1);
    if reply.bytes.first() != Some(&b'*') || reply.elements.len() != places.len() {
        return kept.figures.refuse(NotKept::Form);
    }
    let begins = std::iter::once(begin).chain(reply.elements.iter().map(|element| element.end));
    for ((place, begin), element) in places.into_iter().zip(begins).zip(&reply.elements) {
        let Some(bytes) = reply.bytes.get(begin..element.end) else { return kept.figures.refuse(NotKept::Form) };
        if element.is_null {
            // MGET says so of keys of another type too, of which GET says something else
            if kept.keeps_absent && shape == ReadShape::Fields {
                kept.keep(place, bytes, asked);
            } else {
                kept.figures.refuse(NotKept::Absent);
            }
        } else if bytes.first() == Some(&b'$') {
            kept.keep(place, bytes, asked);
        } else {
            kept.figures.refuse(NotKept::Form);
        }
    }
}
