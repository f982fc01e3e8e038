//! Reads gRPC messages in an HTTP/2 body, piece by piece. Each message has a head of five bytes: a flag and a length. A
//! compressed message is reported and skipped.

/// An event of a gRPC body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message begins.
    Begin {
        /// The length in bytes.
        length: u32,
    },
    /// The next bytes of the message, at least one.
    Piece(&'a [u8]),
    /// The message is complete.
    End,
    /// A compressed message begins. Nothing else follows about it.
    Compressed {
        /// The compressed length in bytes.
        length: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a head, of which this many bytes arrived.
    Head(u8),
    Body,
    Compressed,
    Broken,
}

/// A reader of gRPC bodies.
#[derive(Clone, Debug)]
pub struct FrameReader {
    state: State,
    is_compressed: bool,
    /// In the head the length so far; in the body the number of bytes left.
    left: u32,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameReader {
    /// A reader at the start of a body.
    #[must_use]
    pub fn new() -> Self {
        Self { state: State::Head(0), is_compressed: false, left: 0 }
    }

    /// Whether the bytes are not gRPC (a flag that is neither 0 nor 1). Nothing is returned after that.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Ends the body. Returns whether the last message is complete.
    #[must_use]
    pub fn end(&self) -> bool {
        self.state == State::Head(0)
    }

    /// Reads the next piece of a body.
    pub fn feed(&mut self, bytes: &[u8], on: &mut impl FnMut(Frame<'_>)) {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if self.state == State::Head(0)
                && let [flag @ (0 | 1), a, b, c, d, behind @ ..] = rest
            {
                (self.is_compressed, self.left) = (*flag == 1, u32::from_be_bytes([*a, *b, *c, *d]));
                rest = behind;
                self.begin(on);
                continue;
            }
            match self.state {
                State::Head(came) => {
                    self.head(came, *first, on);
                    rest = &rest[1..];
                }
                State::Body | State::Compressed => {
                    let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                    let (piece, behind) = rest.split_at(taken);
                    rest = behind;
                    self.left -= taken as u32;
                    if self.state == State::Body {
                        on(Frame::Piece(piece));
                    }
                    self.body(on);
                }
                State::Broken => return,
            }
        }
    }

    fn head(&mut self, came: u8, byte: u8, on: &mut impl FnMut(Frame<'_>)) {
        if came == 0 {
            (self.is_compressed, self.left) = (byte == 1, 0);
            self.state = if byte > 1 { State::Broken } else { State::Head(1) };
            return;
        }
        self.left = self.left << 8 | u32::from(byte);
        if came < 4 {
            self.state = State::Head(came + 1);
            return;
        }
        self.begin(on);
    }

    /// Begins the message whose head was read.
    fn begin(&mut self, on: &mut impl FnMut(Frame<'_>)) {
        if self.is_compressed {
            self.state = State::Compressed;
            on(Frame::Compressed { length: self.left });
        } else {
            self.state = State::Body;
            on(Frame::Begin { length: self.left });
        }
        self.body(on);
    }

    /// Ends the message if no bytes of it are left.
    fn body(&mut self, on: &mut impl FnMut(Frame<'_>)) {
        if self.left == 0 {
            if self.state == State::Body {
                on(Frame::End);
            }
            self.state = State::Head(0);
        }
    }
}

#[cfg(test)]
mod tests;
