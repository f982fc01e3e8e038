//! Reads a request's body whole, within limits of size and time, and decompresses it. Sizes are bytes.

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::net::{GunzipError, gunzip, inflate};
use crate::serving::error::RequestError;
use crate::serving::limits::Limits;

/// A body's content encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEncoding {
    Plain,
    Gzip,
    Zlib,
}

impl BodyEncoding {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, RequestError> {
        match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"" | b"identity") => Ok(Self::Plain),
            Some(name) if name.eq_ignore_ascii_case(b"gzip") => Ok(Self::Gzip),
            Some(name) if name.eq_ignore_ascii_case(b"deflate") => Ok(Self::Zlib),
            Some(other) => Err(RequestError::Encoding(String::from_utf8_lossy(other).into_owned())),
        }
    }
}

/// Reads a body, still compressed.
pub(super) async fn collect(body: Body, limits: &Limits) -> Result<Bytes, RequestError> {
    let limit = limits.max_body_bytes();
    if body.size_hint().lower() > limit as u64 {
        return Err(RequestError::TooLarge { limit });
    }
    let read = tokio::time::timeout(limits.body_timeout.get(), Limited::new(body, limit).collect()).await;
    let read = read.map_err(|_| RequestError::Slow { ms: limits.body_timeout.get().as_millis() })?;
    read.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            RequestError::TooLarge { limit }
        } else {
            RequestError::Input(format!("the body cannot be read: {error}"))
        }
    })
}

/// Decompresses a body. The limit applies to the decompressed size too, so a small body cannot fill the memory.
pub(super) fn unpack(body: Bytes, packing: BodyEncoding, limits: &Limits) -> Result<Bytes, RequestError> {
    let limit = limits.max_body_bytes();
    let unpacked = match packing {
        BodyEncoding::Plain => return Ok(body),
        BodyEncoding::Gzip => gunzip(&body, limit),
        BodyEncoding::Zlib => inflate(&body, limit),
    };
    unpacked.map_err(|error| match error {
        GunzipError::TooLarge(limit) => RequestError::TooLarge { limit },
        GunzipError::Corrupt(error) => RequestError::Input(format!("the body cannot be unpacked: {error}")),
    })
}
