//! Decodes content codings: of whole bodies with a limit, and of bodies that pass, piece by piece.
//!
//! A small body may unpack to any size, so everything here is bounded: [`unpack`] by the size of its result, [`BodyDecoder`] by what
//! it yields for each byte that came, and both by the window that a decoder keeps. Sizes are bytes. Nothing here reads what a body
//! means, and nothing is compressed here.
//!
//! ```
//! use http::{HeaderMap, HeaderValue, header::CONTENT_ENCODING};
//! use lapwing_compression::{Codings, UnpackError, unpack};
//!
//! let mut head = HeaderMap::new();
//! head.insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
//! let codings = Codings::of(&head).unwrap();
//! let body = b"\x8b\x05\x80hot and cold\x03";
//! assert_eq!(unpack(&codings, body, 100).unwrap(), "hot and cold");
//! assert_eq!(unpack(&codings, body, 5), Err(UnpackError::TooLarge(5)));
//! ```

#![forbid(unsafe_code)]

mod brotli;
mod coding;
mod deflate;
mod gzip;
mod memory;
mod stage;
mod step;
mod stream;
mod whole;
mod zstd;

pub use coding::{Codings, ContentCoding, UnknownCoding, is_coded};
pub use memory::DecoderMemory;
pub use step::DecodeError;
pub use stream::BodyDecoder;
pub use whole::{BodyCoding, UnpackError, unpack, unpack_start};

/// The largest window that a decoder keeps: what RFC 9659 allows for Zstandard over HTTP.
const MAX_WINDOW_BITS: u32 = 23;

#[cfg(test)]
mod tests;
