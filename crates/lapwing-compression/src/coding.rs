//! The content codings that a head names.

use arrayvec::ArrayVec;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// The most codings of one body. No server is known to apply more than one; each further one multiplies what a byte unpacks to.
const MAX_CODINGS: usize = 3;
/// How many bytes of an unknown name are kept.
const NAME_BYTES: usize = 40;

/// A content coding (RFC 9110, section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// `gzip` and `x-gzip`, of one member or several.
    Gzip,
    /// `deflate`: zlib, and what some servers send under this name, deflate without zlib's frame.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`, of one frame or several.
    Zstd,
}

/// The codings of a body, in the order in which they were applied. None for most bodies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codings(ArrayVec<ContentCoding, MAX_CODINGS>);

/// A body in a coding that is not known, or in too many.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("content coding {0:?} is not read")]
pub struct UnknownCoding(pub String);

/// Whether a head has a `Content-Encoding`. Few have: to pass over their names costs less than to look it up.
#[must_use]
pub fn is_coded(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| *name == CONTENT_ENCODING)
}

impl ContentCoding {
    /// The coding of this name, in any case of letters.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"gzip") || is(b"x-gzip") {
            Some(Self::Gzip)
        } else if is(b"deflate") {
            Some(Self::Deflate)
        } else if is(b"br") {
            Some(Self::Brotli)
        } else if is(b"zstd") {
            Some(Self::Zstd)
        } else {
            None
        }
    }
}

impl Codings {
    /// The codings that `Content-Encoding` names, in one field or several.
    ///
    /// # Errors
    ///
    /// [`UnknownCoding`]: one of them is not known, or there are more than three.
    pub fn of(headers: &HeaderMap) -> Result<Self, UnknownCoding> {
        let mut codings = Self::default();
        if !is_coded(headers) {
            return Ok(codings);
        }
        for field in headers.get_all(CONTENT_ENCODING) {
            for name in field.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                codings.push(name)?;
            }
        }
        Ok(codings)
    }

    /// The codings of this list of names.
    ///
    /// # Errors
    ///
    /// As for [`Codings::of`].
    pub fn named(names: &[u8]) -> Result<Self, UnknownCoding> {
        let mut codings = Self::default();
        names.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).try_for_each(|name| codings.push(name))?;
        Ok(codings)
    }

    /// Whether the body is as it is.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.is_empty()
    }

    /// The codings in the order in which they are decoded.
    pub(crate) fn to_undo(&self) -> impl Iterator<Item = ContentCoding> + '_ {
        self.0.iter().rev().copied()
    }

    fn push(&mut self, name: &[u8]) -> Result<(), UnknownCoding> {
        if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
            return Ok(());
        }
        let coding = ContentCoding::named(name);
        let is_taken = coding.is_some_and(|coding| self.0.try_push(coding).is_ok());
        if is_taken { Ok(()) } else { Err(UnknownCoding(String::from_utf8_lossy(name).chars().take(NAME_BYTES).collect())) }
    }
}

impl From<ContentCoding> for Codings {
    fn from(coding: ContentCoding) -> Self {
        Self(std::iter::once(coding).collect())
    }
}
