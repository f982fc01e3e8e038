//! Heads that HTTP/2 refuses by itself because they are larger than `max_header_bytes`: with a bare 431, or, if they go on and on, with the
//! end of the connection. No request exists by then, so only the frames that go out tell of it.
//!
//! A response without fields ends in its head too. So hyper's own frames are told from Lapwing's by count: the socket's meter knows how
//! many heads and trailers that end a stream hyper was given.

use arrayvec::ArrayVec;

/// The head of a frame: its length in three bytes, type, flags, stream (RFC 9113, 4.1).
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
/// How much of a `GOAWAY` is read: the last stream, the code, and the beginning of its text.
const GOAWAY_READ: usize = 40;
/// The code `ENHANCE_YOUR_CALM`.
const CALM: &[u8] = &[0, 0, 0, 11];
/// What h2 writes beside it, of a head that has too many frames or fields.
const TEXTS: [&[u8]; 2] = [b"too_many_continuations", b"header_list_way_too_large"];
/// The longest block that is nothing but a status.
const STATUS_ONLY: usize = 8;

/// What a frame that goes out may tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// A head or trailers that end a stream. `is_bare`: there may be nothing but a status in it.
    LastHead { is_bare: bool },
    /// The connection ends, because a head is too large.
    TooLarge,
}

/// Finds the frames among the bytes that go out on one HTTP/2 connection.
#[derive(Debug, Default)]
pub(crate) struct SentFrames {
    /// The beginning of a frame, as far as it is read.
    head: ArrayVec<u8, { FRAME_HEAD + GOAWAY_READ }>,
    /// Bytes of a frame that are still to pass.
    rest: usize,
}

impl SentFrames {
    /// `bytes` go out. Calls `on_frame` for each frame that says something.
    pub(crate) fn pass(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(SentFrame)) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let passed = self.rest.min(bytes.len());
                self.rest -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            // most frames begin where a write does, or in it
            if self.head.is_empty()
                && let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD>()
                && wanted(head) == FRAME_HEAD
            {
                self.rest = length(head);
                tell(head, &mut on_frame);
                bytes = rest;
                continue;
            }
            let read = bytes.len().min(wanted(&self.head) - self.head.len());
            self.head.extend(bytes[..read].iter().copied());
            bytes = &bytes[read..];
            if self.head.len() == wanted(&self.head) {
                self.rest = FRAME_HEAD + length(&self.head) - self.head.len();
                tell(&self.head, &mut on_frame);
                self.head.clear();
            }
        }
    }
}

/// How many bytes of the frame that begins with `head` are read.
fn wanted(head: &[u8]) -> usize {
    match head.get(3) {
        Some(&GOAWAY) => FRAME_HEAD + length(head).min(GOAWAY_READ),
        _ => FRAME_HEAD,
    }
}

/// The length of the frame's payload.
fn length(head: &[u8]) -> usize {
    head.iter().take(3).fold(0, |length, byte| (length << 8) | usize::from(*byte))
}

fn tell(head: &[u8], on_frame: &mut impl FnMut(SentFrame)) {
    match head[3] {
        HEADERS if head[4] & END_STREAM != 0 => on_frame(SentFrame::LastHead { is_bare: length(head) <= STATUS_ONLY }),
        GOAWAY => {
            let code_and_text = head.get(FRAME_HEAD + 4..).unwrap_or_default();
            if code_and_text.strip_prefix(CALM).is_some_and(|text| TEXTS.contains(&text)) {
                on_frame(SentFrame::TooLarge);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_are_found_however_they_are_split() {
        let goaway = |code: u8, text: &[u8]| frame(GOAWAY, 0, &[&[0, 0, 0, 1, 0, 0, 0, code][..], text].concat());
        let sent = [
            frame(4, 0, &[7; 24]),
            frame(HEADERS, 4, &[7; 3]),
            frame(0, END_STREAM, &[1; 300]),
            frame(HEADERS, 5, &[7; 5]),
            frame(HEADERS, 5, &[7; 70]),
            goaway(0, b""),
            goaway(11, b"too_many_resets"),
            goaway(2, b"too_many_continuations"),
            goaway(11, b"too_many_continuations"),
            frame(HEADERS, 5, &[7; 1]),
        ]
        .concat();
        let bare = |is_bare| SentFrame::LastHead { is_bare };
        for size in [1, 2, 7, 13, 100, sent.len()] {
            let (mut frames, mut told) = (SentFrames::default(), Vec::new());
            sent.chunks(size).for_each(|bytes| frames.pass(bytes, |frame| told.push(frame)));
            assert_eq!(told, [bare(true), bare(false), SentFrame::TooLarge, bare(true)], "pieces of {size}");
        }
    }
}
