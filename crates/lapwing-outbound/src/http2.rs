//! HTTP/2 and gRPC, read while they pass: when each stream began and ended, by the frames that say so (RFC 9113).
//!
//! Heads are compressed by what both ends remember, and not read: neither names nor `traceparent`. Nothing of a frame is kept but its
//! nine first bytes.

use rustc_hash::FxHashMap;

use crate::call::{Asked, CallEnd, CallLookups, CallReader, CallSink, EndedCall, Wait};
use crate::name::CallName;
use crate::unread::Unread;
use lapwing_ledger::Stamp;

/// What a client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The most streams that are open at once.
const MAX_OPEN: usize = 4096;
/// The length of a frame's head.
const FRAME_HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

/// Follows the streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct Http2Reader {
    /// How much of the preface has come.
    preface: usize,
    sent: Frames,
    received: Frames,
    open: FxHashMap<u32, (Stamp, Asked)>,
    /// The greatest stream that the client began.
    latest: u32,
}

/// The frames of one direction.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; FRAME_HEAD],
    have: usize,
    /// Bytes of the frame that have not come.
    left: u64,
}

/// What a frame's head says.
#[derive(Clone, Copy, Debug)]
struct FrameHead {
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Frames {
    /// Reads frames, and calls `each` with every one when its last byte has come.
    fn read(&mut self, mut bytes: &[u8], mut each: impl FnMut(FrameHead) -> Result<(), Unread>) -> Result<(), Unread> {
        while !bytes.is_empty() {
            if self.have < FRAME_HEAD {
                let taken = (FRAME_HEAD - self.have).min(bytes.len());
                self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
                (self.have, bytes) = (self.have + taken, &bytes[taken..]);
                if self.have < FRAME_HEAD {
                    return Ok(());
                }
                let [a, b, c, ..] = self.head;
                self.left = u64::from(u32::from_be_bytes([0, a, b, c]));
            }
            let taken = self.left.min(bytes.len() as u64);
            (self.left, bytes) = (self.left - taken, &bytes[taken as usize..]);
            if self.left == 0 {
                let [.., kind, flags, d, e, f, g] = self.head;
                self.have = 0;
                each(FrameHead { kind, flags, stream: u32::from_be_bytes([d & 0x7f, e, f, g]) })?;
            }
        }
        Ok(())
    }
}

impl FrameHead {
    const fn ends_stream(self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

impl CallReader for Http2Reader {
    fn client(&mut self, mut bytes: &[u8], now: Stamp, in_flight: u64, sink: &mut impl CallSink) -> Result<(), Unread> {
        if self.preface < PREFACE.len() {
            let taken = (PREFACE.len() - self.preface).min(bytes.len());
            if bytes[..taken] != PREFACE[self.preface..self.preface + taken] {
                return Err(Unread::Malformed);
            }
            (self.preface, bytes) = (self.preface + taken, &bytes[taken..]);
        }
        let Self { sent, open, latest, .. } = self;
        sent.read(bytes, |frame| {
            match frame.kind {
                HEADERS if frame.stream > *latest => {
                    if open.len() >= MAX_OPEN {
                        return Err(Unread::TooMany);
                    }
                    *latest = frame.stream;
                    open.insert(frame.stream, (now, Asked::of(in_flight)));
                }
                RST_STREAM => end(open.remove(&frame.stream), CallEnd::Cut, now, sink),
                _ => {}
            }
            Ok(())
        })
    }

    fn server(&mut self, bytes: &[u8], now: Stamp, sink: &mut impl CallSink) -> Result<(), Unread> {
        let open = &mut self.open;
        self.received.read(bytes, |frame| {
            if frame.ends_stream() {
                end(open.remove(&frame.stream), CallEnd::Answered, now, sink);
            } else if frame.kind == RST_STREAM {
                end(open.remove(&frame.stream), CallEnd::Failed, now, sink);
            }
            Ok(())
        })
    }

    fn end(&mut self, now: Stamp, sink: &mut impl CallSink) {
        for (_, call) in self.open.drain() {
            end(Some(call), CallEnd::Cut, now, sink);
        }
    }

    fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }
}

/// A stream has ended.
fn end(call: Option<(Stamp, Asked)>, end: CallEnd, now: Stamp, sink: &mut impl CallSink) {
    let Some((began, asked)) = call else { return };
    let (name, lookups) = (CallName::of_http("grpc"), CallLookups::default());
    sink.ended(EndedCall { name, took_ns: Some(now.since(began)), end, keys: 0, lookups });
    sink.waited(Wait { began, ended: now, asked });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Shown(Vec<(CallEnd, Option<u64>)>, Vec<Wait>);

    impl CallSink for Shown {
        fn ended(&mut self, call: EndedCall) {
            self.0.push((call.end, call.took_ns));
        }

        fn waited(&mut self, wait: Wait) {
            self.1.push(wait);
        }
    }

    fn frame(kind: u8, flags: u8, stream: u32, length: usize) -> Vec<u8> {
        let head = [&(length as u32).to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [head, vec![7; length]].concat()
    }

    fn at(ns: u64) -> Stamp {
        Stamp::default().plus(ns)
    }

    #[test]
    fn streams_are_calls_however_frames_are_cut() {
        let asked = [
            PREFACE.to_vec(),
            frame(4, 0, 0, 18),
            frame(HEADERS, 4, 1, 40),
            frame(DATA, END_STREAM, 1, 500),
            frame(HEADERS, 4, 3, 40),
            frame(HEADERS, 5, 5, 40),
            frame(RST_STREAM, 0, 5, 4),
            frame(HEADERS, 5, 7, 9),
        ];
        let answered = [
            frame(4, 1, 0, 0),
            frame(HEADERS, 4, 1, 20),
            frame(DATA, 0, 1, 900),
            frame(HEADERS, 5, 3, 20),
            frame(HEADERS, 5, 1, 20),
            frame(RST_STREAM, 0, 7, 4),
            frame(DATA, END_STREAM, 9, 4),
        ];
        for step in [1, 2, 5, 9, 10, 400, usize::MAX] {
            let (mut reader, mut shown) = (Http2Reader::default(), Shown::default());
            asked.concat().chunks(step).for_each(|piece| reader.client(piece, at(1000), 1, &mut shown).unwrap());
            answered.concat().chunks(step).for_each(|piece| reader.server(piece, at(3000), &mut shown).unwrap());
            let ends: Vec<_> = shown.0.iter().map(|(end, _)| *end).collect();
            assert_eq!(ends, [CallEnd::Cut, CallEnd::Answered, CallEnd::Answered, CallEnd::Failed]);
            assert_eq!((shown.0[1].1, shown.1.len(), reader.is_waiting()), (Some(2000), 4, false));
        }
        let not_h2 = Http2Reader::default().client(b"GET / HTTP/1.1\r\n\r\n", at(1), 1, &mut Shown::default());
        assert_eq!(not_h2, Err(Unread::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_alike_however_they_are_cut(bytes in prop::collection::vec(0..12_u8, 0..300), step in 1..30_usize) {
            let read = |step: usize| {
                let (mut reader, mut shown) = (Http2Reader::default(), Shown::default());
                let read = PREFACE.chunks(step).chain(bytes.chunks(step)).try_for_each(|piece| reader.client(piece, at(1), 1, &mut shown));
                let answered = bytes.chunks(step).try_for_each(|piece| reader.server(piece, at(2), &mut shown));
                (read, answered, reader.open.len(), shown)
            };
            prop_assert_eq!(read(usize::MAX), read(step));
        }
    }
}
