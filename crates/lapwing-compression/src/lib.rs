//! Content codings undone: of whole bodies with a limit, and of bodies that pass, piece by piece.
//!
//! A small body may unpack to any size, so everything here is bounded: [`unpack`] by the size of its result, [`BodyDecoder`] by what
//! it yields for each byte that came, and both by the window that a decoder keeps. Sizes are bytes. Nothing here reads what a body
//! means.

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
pub use whole::{UnpackError, unpack};

/// The largest window that a decoder keeps: what RFC 9659 allows for Zstandard over HTTP.
const MAX_WINDOW_BITS: u32 = 23;

#[cfg(test)]
mod tests;
