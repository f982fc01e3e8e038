//! Decodes base64 as it passes, four characters at a time. Padding may be in the middle: gRPC-Web as text is one piece of base64
//! for each write of the server.

/// The characters of a quadruple that is not complete.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quads {
    bits: u32,
    came: u8,
    padding: u8,
}

impl Quads {
    /// Decodes the next piece. Characters that are none of base64 are passed over.
    pub(crate) fn feed(&mut self, text: &[u8], mut on: impl FnMut(&[u8])) {
        let (mut out, mut len) = ([0; 96], 0);
        for byte in text {
            let Some(value) = value(*byte) else { continue };
            self.bits = self.bits << 6 | u32::from(value);
            self.padding += u8::from(*byte == b'=');
            self.came += 1;
            if self.came < 4 {
                continue;
            }
            let [_, bytes @ ..] = self.bits.to_be_bytes();
            let whole = 3 - usize::from(self.padding.min(2));
            out[len..len + whole].copy_from_slice(&bytes[..whole]);
            len += whole;
            *self = Self::default();
            if len + 3 > out.len() {
                on(&out[..len]);
                len = 0;
            }
        }
        if len > 0 {
            on(&out[..len]);
        }
    }
}

const fn value(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        b'=' => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn pieces_decode_like_the_whole() {
        let parts: [&[u8]; 4] = [b"a", &[0xff; 200], b"", b"12345"];
        let text: String = parts.iter().map(|part| BASE64_STANDARD.encode(part)).collect();
        for length in [1, 3, 4, 7, 1000] {
            let (mut quads, mut decoded) = (Quads::default(), Vec::new());
            text.as_bytes().chunks(length).for_each(|piece| quads.feed(piece, |bytes| decoded.extend_from_slice(bytes)));
            assert_eq!(decoded, parts.concat(), "{length}");
        }
    }
}
