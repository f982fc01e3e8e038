//! One body of an exchange as it passes: its content coding is decoded, and it is read. A body that cannot be decoded is not read further, and
//! says why.

use http::HeaderMap;

use super::body_reader::BodyReader;
use lapwing_compression::{BodyDecoder, Codings, DecodeError, DecoderMemory};

/// Why a body is not read, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadBody {
    /// Its content coding is not known.
    Coding,
    /// It is not in the coding that its head names.
    Corrupt,
    /// It unpacks to too much for its size.
    TooLarge,
    /// It needs a larger window than is kept, or the decoders of all bodies hold too much.
    Memory,
}

/// A body, and what decodes its coding.
#[derive(Debug)]
pub(crate) struct PassingBody {
    pub(crate) reader: BodyReader,
    decoder: Option<Box<BodyDecoder>>,
    pub(crate) unread: Option<UnreadBody>,
}

impl PassingBody {
    /// A body in no coding.
    pub(crate) const fn plain(reader: BodyReader) -> Self {
        Self { reader, decoder: None, unread: None }
    }

    /// Decodes the body as its head says.
    pub(crate) fn decode(&mut self, headers: &HeaderMap, memory: &DecoderMemory) {
        match Codings::of(headers) {
            Ok(codings) if codings.is_plain() => {}
            Ok(codings) => match BodyDecoder::new(&codings, memory) {
                Ok(decoder) => self.decoder = Some(Box::new(decoder)),
                Err(error) => self.stop(error.into()),
            },
            Err(_) => self.stop(UnreadBody::Coding),
        }
    }

    /// Calls `read` with the reader and each decoded part of a piece. Returns false if the piece could not be decoded to its end; the
    /// body is then read no further.
    pub(crate) fn feed(&mut self, piece: &[u8], mut read: impl FnMut(&mut BodyReader, &[u8])) -> bool {
        let Some(decoder) = &mut self.decoder else {
            read(&mut self.reader, piece);
            return true;
        };
        let reader = &mut self.reader;
        let result = decoder.feed(piece, &mut |part| read(reader, part));
        result.map_err(|error| self.stop(error.into())).is_ok()
    }

    fn stop(&mut self, why: UnreadBody) {
        (self.reader, self.decoder, self.unread) = (BodyReader::Off, None, Some(why));
    }
}

impl From<DecodeError> for UnreadBody {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Corrupt => Self::Corrupt,
            DecodeError::TooLarge => Self::TooLarge,
            DecodeError::Memory => Self::Memory,
        }
    }
}
