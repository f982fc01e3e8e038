//! The captures that are attached to one body.

use bytes::Bytes;
use http_body::Frame;

use super::writer::CaptureWriter;

/// The captures of one body, oldest first. Without any it costs a null check per frame.
#[derive(Debug, Default)]
#[allow(clippy::box_collection, reason = "one word instead of three in every body, and bodies are moved by value")]
pub(crate) struct AttachedCaptures(Option<Box<Vec<CaptureWriter>>>);

impl AttachedCaptures {
    /// Attaches another.
    pub(crate) fn attach(&mut self, writer: CaptureWriter) {
        self.0.get_or_insert_default().push(writer);
    }

    /// How many are attached.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |writers| writers.len())
    }

    /// Passes a frame to all except the first `skipped`.
    #[inline]
    pub(crate) fn push(&mut self, frame: &Frame<Bytes>, skipped: usize) {
        if let Some(writers) = &mut self.0 {
            writers.iter_mut().skip(skipped).for_each(|writer| writer.push(frame));
        }
    }

    /// The body has come to its end.
    #[inline]
    pub(crate) fn finish(&mut self) {
        if let Some(writers) = self.0.take() {
            writers.into_iter().for_each(|mut writer| writer.finish());
        }
    }
}
