//! The documents of a stream: server-sent events, or JSON lines.

use bytes::Bytes;

use super::{AnswerDecodeError, Document};
use lapwing_protocol::Media;
use lapwing_protocol::wire::{SsePiece, SseReader};

/// The documents of a stream, in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Documents {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.text[start..*end].trim_ascii()).filter(|text| is_document(text))
    }

    /// Whether the stream is of JSON documents, not of plain text.
    pub(crate) fn is_json(&self) -> bool {
        self.iter().next().is_none_or(|first| first.starts_with(b"{") || first.starts_with(b"["))
    }

    /// All documents as one text.
    pub(crate) fn concatenated(self) -> Bytes {
        self.iter().collect::<Vec<_>>().concat().into()
    }

    fn end(&mut self) {
        self.ends.push(self.text.len());
    }
}

/// `[DONE]` ends a stream of the OpenAI API and is no document.
fn is_document(text: &[u8]) -> bool {
    !text.is_empty() && text != b"[DONE]"
}

/// Takes the documents out of a stream. An event that the end of the stream cuts off counts too, because servers leave out the last
/// blank line.
pub(crate) fn documents(media: Media, body: &Bytes) -> Documents {
    let mut documents = Documents::default();
    if media == Media::Lines {
        for line in body.split_inclusive(|byte| *byte == b'\n') {
            documents.text.extend_from_slice(line);
            documents.end();
        }
        return documents;
    }
    SseReader::new().feed(body, &mut |piece| match piece {
        SsePiece::Data(data) => documents.text.extend_from_slice(data),
        SsePiece::End => documents.end(),
        SsePiece::Name(_) | SsePiece::Error => {}
    });
    documents.end();
    documents
}

/// The documents of a stream as the elements of one array.
pub(crate) fn as_array(documents: &Documents) -> Result<Document, AnswerDecodeError> {
    let mut array = Document::default();
    let at = array.open_array();
    for text in documents.iter() {
        array.append(text)?;
    }
    array.close_array(at);
    Ok(array)
}
