//! What gives the rows of a request other than lists of texts: tensors, chats, tables.

/// A tensor that is being read.
#[derive(Debug, Default)]
pub(crate) struct InputTensor {
    /// Whether its elements are tokens.
    pub(crate) is_token_ids: bool,
    pub(crate) rows: Option<u64>,
    pub(crate) elements: Option<u64>,
}

/// The chats of a request.
#[derive(Debug, Default)]
pub(crate) struct Chats {
    /// Whether there are messages, which make one chat.
    pub(crate) has_messages: bool,
    /// How many lists of messages there are.
    pub(crate) lists: u64,
}

/// A table as CSV.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) records: u64,
    /// Whether the first record looks like a header.
    pub(crate) has_words_first: bool,
}

impl InputTensor {
    pub(crate) fn dim(&mut self, dim: Option<u64>) {
        // an unknown dimension, written as -1, is ignored
        let Some(dim) = dim else { return };
        self.rows.get_or_insert(dim);
        self.elements = Some(self.elements.unwrap_or(1).saturating_mul(dim));
    }
}

impl Chats {
    pub(crate) fn rows(&self) -> Option<u64> {
        if self.lists > 0 { Some(self.lists) } else { self.has_messages.then_some(1) }
    }
}

impl Table {
    /// The records without the header. The answer knows best whether there is one: it has this many rows.
    pub(crate) fn rows(self, answered: Option<u64>) -> u64 {
        let without = self.records.saturating_sub(1);
        match answered {
            Some(answered) if answered == self.records || answered == without => answered,
            _ if self.has_words_first => without,
            _ => self.records,
        }
    }
}

/// Whether an event of this type is the last of a stream.
pub(crate) fn ends_stream(kind: &[u8]) -> bool {
    matches!(
        kind,
        b"response.completed"
            | b"response.incomplete"
            | b"response.failed"
            | b"message_stop"
            | b"message-end"
            | b"transcript.text.done"
            | b"speech.audio.done"
    )
}
