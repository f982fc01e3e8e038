//! The first bytes that the upstream sends over a connection: they tell what it speaks. Over HTTP/2, the frame with which it announces the
//! connection's end, too.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use arrayvec::ArrayVec;

/// The head of a frame: its length in three bytes, type, flags, stream (RFC 9113, 4.1).
const FRAME_HEAD: usize = 9;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// Where the type and the stream of a frame are in its head.
const TYPE: usize = 3;
const STREAM: std::ops::Range<usize> = 5..9;
/// The largest first frame: what nobody allowed to be larger (RFC 9113, 4.2).
const MAX_FIRST: usize = 16_384;

/// What the first bytes of a server are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// An answer of HTTP/1.
    Http1,
    /// The `SETTINGS` with which HTTP/2 begins.
    Http2,
    /// An alert or a handshake of TLS.
    Tls,
    /// Something else, or less.
    Other,
    /// The end: it sent nothing.
    Nothing,
}

impl Greeting {
    /// How many bytes decide.
    pub(crate) const READ: usize = FRAME_HEAD;

    /// What `first` begins. `None` while more has to be read, unless that was all.
    pub(crate) fn of(first: &[u8], is_all: bool) -> Option<Self> {
        const HTTP1: &[u8] = b"HTTP/";
        match first {
            [] => is_all.then_some(Self::Nothing),
            _ if first.starts_with(HTTP1) => Some(Self::Http1),
            [20..=23, 3, _, ..] => Some(Self::Tls),
            _ if first.len() < Self::READ && !is_all => None,
            _ if first.len() >= Self::READ && is_settings(first) => Some(Self::Http2),
            _ => Some(Self::Other),
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Http1 => 1,
            Self::Http2 => 2,
            Self::Tls => 3,
            Self::Other => 4,
            Self::Nothing => 0,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Http1,
            2 => Self::Http2,
            3 => Self::Tls,
            4 => Self::Other,
            _ => Self::Nothing,
        }
    }
}

/// Whether a frame's head is that of a connection's first `SETTINGS`: no acknowledgement, of whole settings, of no stream.
fn is_settings(head: &[u8]) -> bool {
    let length = length(head);
    head[TYPE] == SETTINGS && head[TYPE + 1] & 1 == 0 && length.is_multiple_of(6) && length <= MAX_FIRST && head[STREAM] == [0; 4]
}

fn length(head: &[u8]) -> usize {
    head.iter().take(TYPE).fold(0, |length, byte| (length << 8) | usize::from(*byte))
}

/// What the bytes of an upstream's connection have told.
#[derive(Debug, Default)]
pub(crate) struct UpstreamSigns {
    /// [`Greeting::code`].
    greeting: AtomicU8,
    has_settings: AtomicBool,
    is_leaving: AtomicBool,
}

impl UpstreamSigns {
    /// What the upstream began with.
    pub(crate) fn greeting(&self) -> Greeting {
        Greeting::from_code(self.greeting.load(Relaxed))
    }

    /// Returns whether all of the `SETTINGS` with which HTTP/2 begins was read.
    pub(crate) fn has_settings(&self) -> bool {
        self.has_settings.load(Relaxed)
    }

    fn on_frame_end(&self) {
        if !self.has_settings() {
            self.has_settings.store(true, Relaxed);
        }
    }

    /// Returns whether the upstream has announced the connection's end (HTTP/2), or ended its side.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Relaxed)
    }
}

/// Looks at what comes over one connection of the upstream.
#[derive(Debug, Default)]
pub(crate) struct Greeted {
    /// The beginning of the connection, or of a frame, as far as it is read.
    head: ArrayVec<u8, FRAME_HEAD>,
    /// Bytes of a frame that are still to pass.
    rest: usize,
    greeting: Option<Greeting>,
}

impl Greeted {
    /// Whether anything more may be found.
    pub(crate) const fn is_probing(&self) -> bool {
        matches!(self.greeting, None | Some(Greeting::Http2))
    }

    /// `bytes` were read, or the end.
    pub(crate) fn pass(&mut self, mut bytes: &[u8], signs: &UpstreamSigns) {
        if bytes.is_empty() {
            signs.is_leaving.store(true, Relaxed);
        }
        while !bytes.is_empty() && self.is_probing() {
            if self.rest > 0 {
                let passed = self.rest.min(bytes.len());
                self.rest -= passed;
                bytes = &bytes[passed..];
                if self.rest == 0 {
                    signs.on_frame_end();
                }
                continue;
            }
            // most frames begin where a read does, or in it
            if self.head.is_empty()
                && self.greeting.is_some()
                && let Some((head, rest)) = bytes.split_first_chunk()
            {
                self.begin_frame(head, signs);
                bytes = rest;
                continue;
            }
            let read = bytes.len().min(FRAME_HEAD - self.head.len());
            self.head.extend(bytes[..read].iter().copied());
            bytes = &bytes[read..];
            if self.greeting.is_none() {
                self.greeting = Greeting::of(&self.head, false);
                signs.greeting.store(self.greeting.map_or(0, Greeting::code), Relaxed);
            }
            if let Ok(head) = self.head.as_slice().try_into() {
                self.head.clear();
                self.begin_frame(&head, signs);
            }
        }
    }

    /// What was read is the `head` of a frame, or as much of something else.
    fn begin_frame(&mut self, head: &[u8; FRAME_HEAD], signs: &UpstreamSigns) {
        if self.greeting == Some(Greeting::Http2) && head[TYPE] == GOAWAY {
            signs.is_leaving.store(true, Relaxed);
        }
        self.rest = length(head);
        if self.rest == 0 && self.is_probing() {
            signs.on_frame_end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_what_a_server_speaks() {
        let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64";
        for (bytes, greeting) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], Greeting::Http1),
            (b"HTTP/1.0 505 No", Greeting::Http1),
            (settings, Greeting::Http2),
            (b"\0\0\0\x04\x01\0\0\0\0", Greeting::Other),
            (b"\x15\x03\x01\0\x02\x02\x46", Greeting::Tls),
            (b"-ERR unknown command", Greeting::Other),
            (b"220", Greeting::Other),
            (b"", Greeting::Nothing),
        ] {
            assert_eq!(Greeting::of(bytes, true), Some(greeting), "{}", bytes.escape_ascii());
            assert_eq!(Greeting::from_code(greeting.code()), greeting);
        }
        assert_eq!([Greeting::of(b"", false), Greeting::of(b"HTT", false), Greeting::of(&settings[..8], false)], [None; 3]);
    }

    #[test]
    fn a_goaway_is_found_however_bytes_are_split() {
        let frame =
            |kind: u8, payload: &[u8]| [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, 0, 0, 0, 0, 0], payload].concat();
        let read =
            [frame(4, &[7; 12]), frame(0, &[7; 40]), frame(8, &[7; 4]), frame(GOAWAY, &[0; 30]), frame(1, &[7; 3])].concat();
        for size in [1, 2, 8, 9, 10, 50, read.len()] {
            let (mut greeted, signs) = <(Greeted, UpstreamSigns)>::default();
            let before = read.len() - frame(GOAWAY, &[0; 30]).len() - frame(1, &[7; 3]).len();
            read[..before].chunks(size).for_each(|bytes| greeted.pass(bytes, &signs));
            assert_eq!((signs.greeting(), signs.is_leaving()), (Greeting::Http2, false), "pieces of {size}");
            read[before..].chunks(size).for_each(|bytes| greeted.pass(bytes, &signs));
            assert_eq!((signs.greeting(), signs.is_leaving()), (Greeting::Http2, true), "pieces of {size}");
        }
        for settings in [frame(SETTINGS, &[7; 12]), frame(SETTINGS, &[])] {
            let (mut greeted, signs) = <(Greeted, UpstreamSigns)>::default();
            let told: Vec<_> = settings
                .iter()
                .map(|byte| {
                    greeted.pass(&[*byte], &signs);
                    signs.has_settings()
                })
                .collect();
            assert_eq!(told.iter().position(|told| *told), Some(settings.len() - 1));
        }
        let (mut http1, signs) = <(Greeted, UpstreamSigns)>::default();
        http1.pass(b"HTTP/1.1 200 OK\r\n", &signs);
        http1.pass(&frame(GOAWAY, &[0; 30]), &signs);
        assert_eq!((signs.greeting(), signs.is_leaving(), http1.is_probing()), (Greeting::Http1, false, false));
        assert!(!signs.has_settings());
    }
}
