//! `deflate`: with zlib's frame, as the standard wants it, or without, as some servers send it.

use arrayvec::ArrayVec;
use flate2::{Decompress, FlushDecompress, Status};

use super::step::{DecodeError, Step};

/// A decoder of deflate.
pub(crate) struct Inflate {
    state: State,
}

enum State {
    /// The first bytes, which show whether it has zlib's frame.
    Sniffing(ArrayVec<u8, 2>),
    Open(Decompress),
    Done,
}

impl Inflate {
    /// What a decoder holds: a window of 32 KiB and its tables.
    pub(crate) const HELD: usize = 48 << 10;

    /// A decoder that finds out whether there is zlib's frame.
    pub(crate) fn sniffing() -> Self {
        Self { state: State::Sniffing(ArrayVec::new()) }
    }

    /// A decoder of what has no frame.
    pub(crate) fn raw() -> Self {
        Self { state: State::Open(Decompress::new(false)) }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        let mut step = Step::default();
        if let State::Sniffing(lead) = &mut self.state {
            while let (Some(byte), false) = (input.get(step.read), lead.is_full()) {
                lead.push(*byte);
                step.read += 1;
            }
            let Ok(lead) = lead.clone().into_inner() else { return Ok(step) };
            self.state = State::Open(Decompress::new(has_zlib_frame(lead)));
            step.written = self.inflate(&lead, output)?.written;
        }
        let further = self.inflate(&input[step.read..], &mut output[step.written..])?;
        Ok(Step { read: step.read + further.read, written: step.written + further.written })
    }

    fn inflate(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        let State::Open(inner) = &mut self.state else { return Ok(Step::default()) };
        let before = (inner.total_in(), inner.total_out());
        let status = inner.decompress(input, output, FlushDecompress::None).map_err(|_| DecodeError::Corrupt)?;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let step = Step { read: size(inner.total_in() - before.0), written: size(inner.total_out() - before.1) };
        if status == Status::StreamEnd {
            self.state = State::Done;
        }
        Ok(step)
    }
}

/// Whether a body begins with zlib's header (RFC 1950, section 2.2).
fn has_zlib_frame([method, flags]: [u8; 2]) -> bool {
    method & 0x0f == 8 && u16::from_be_bytes([method, flags]) % 31 == 0
}
