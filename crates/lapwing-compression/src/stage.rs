//! One coding that is being decoded, whichever it is.

use super::brotli::Unbrotli;
use super::coding::ContentCoding;
use super::deflate::Inflate;
use super::gzip::Gunzip;
use super::step::{DecodeError, Step};
use super::zstd::Unzstd;

/// The decoder of one coding.
pub(crate) enum Stage {
    Gzip(Gunzip),
    Deflate(Inflate),
    Brotli(Unbrotli),
    Zstd(Unzstd),
}

impl Stage {
    pub(crate) fn new(coding: ContentCoding) -> Option<Self> {
        Some(match coding {
            ContentCoding::Gzip => Self::Gzip(Gunzip::new()),
            ContentCoding::Deflate => Self::Deflate(Inflate::sniffing()),
            ContentCoding::Brotli => Self::Brotli(Unbrotli::new()),
            ContentCoding::Zstd => Self::Zstd(Unzstd::new()?),
        })
    }

    /// Decodes from `input` to `output`, as far as either goes.
    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        match self {
            Self::Gzip(stage) => stage.step(input, output),
            Self::Deflate(stage) => stage.step(input, output),
            Self::Brotli(stage) => stage.step(input, output),
            Self::Zstd(stage) => stage.step(input, output),
        }
    }

    /// Whether nothing follows, whatever else comes.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Gzip(stage) => stage.is_done(),
            Self::Deflate(stage) => stage.is_done(),
            Self::Brotli(stage) => stage.is_done(),
            Self::Zstd(_) => false,
        }
    }

    /// Whether the body may end here.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Gzip(stage) => stage.is_whole(),
            Self::Deflate(stage) => stage.is_done(),
            Self::Brotli(stage) => stage.is_done(),
            Self::Zstd(stage) => stage.is_whole(),
        }
    }

    /// How many bytes of memory it has touched, about. It never shrinks.
    pub(crate) fn held(&self) -> usize {
        match self {
            Self::Gzip(_) | Self::Deflate(_) => Inflate::HELD,
            Self::Brotli(stage) => stage.held(),
            Self::Zstd(stage) => stage.held(),
        }
    }
}
