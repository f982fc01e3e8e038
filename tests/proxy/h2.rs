//! A minimal HTTP/2 client: it sends a request, keeps a window closed, and returns what arrives frame by frame.

use crate::wire::Wire;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection that uses stream 1 only.
pub(crate) struct Client(Wire);

/// What arrived on stream 1.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// A head came.
    pub(crate) head: bool,
    pub(crate) body: Vec<u8>,
    pub(crate) reset: bool,
    pub(crate) ended: bool,
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
    frame.extend_from_slice(payload);
    frame
}

impl Client {
    /// A connection whose streams may send `window` bytes before they must be asked for more.
    pub(crate) fn new(mut wire: Wire, window: u32) -> Self {
        wire.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        wire.send(frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat()));
        Self(wire)
    }

    /// `GET /`.
    pub(crate) fn ask(&mut self) -> &mut Self {
        self.0.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'm']));
        self
    }

    /// Gives up stream 1.
    pub(crate) fn reset(&mut self) {
        self.0.send(frame(RESET, 0, 1, &8_u32.to_be_bytes()));
    }

    /// Lets stream 1 (and the connection) send `more` bytes.
    pub(crate) fn widen(&mut self, more: u32) {
        for stream in [0, 1] {
            self.0.send(frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes()));
        }
    }

    /// Returns once a ping has been answered: all that was sent before has been read.
    pub(crate) fn ping(&mut self, answer: &mut Answer) {
        self.0.send(frame(PING, 0, 0, &[0; 8]));
        while self.next(answer) != (PING, 1) {}
    }

    /// Reads until `enough`.
    pub(crate) fn read(&mut self, answer: &mut Answer, enough: impl Fn(&Answer) -> bool) {
        while !enough(answer) {
            self.next(answer);
        }
    }

    /// Reads a frame; returns its kind and flags.
    fn next(&mut self, answer: &mut Answer) -> (u8, u8) {
        let head = self.0.exactly(9);
        let payload = self.0.exactly(u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize);
        let (kind, flags) = (head[3], head[4]);
        match kind {
            DATA => answer.body.extend(payload),
            HEADERS => answer.head = true,
            RESET => answer.reset = true,
            SETTINGS if flags == 0 => drop(self.0.send(frame(SETTINGS, 1, 0, &[]))),
            _ => {}
        }
        answer.ended |= matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        (kind, flags)
    }
}
