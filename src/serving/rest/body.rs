//! A request's body: read whole, within limits of size and time, and unpacked. Sizes are bytes.

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::net::{GunzipError, gunzip, inflate};
use crate::serving::limits::Limits;
use crate::serving::refusal::Refusal;

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zlib,
}

impl Packing {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"" | b"identity") => Ok(Self::Plain),
            Some(name) if name.eq_ignore_ascii_case(b"gzip") => Ok(Self::Gzip),
            Some(name) if name.eq_ignore_ascii_case(b"deflate") => Ok(Self::Zlib),
            Some(other) => Err(Refusal::Encoding(String::from_utf8_lossy(other).into_owned())),
        }
    }
}

/// Reads a body as it came.
pub(super) async fn collect(body: Body, limits: &Limits) -> Result<Bytes, Refusal> {
    let limit = limits.max_body_bytes();
    if body.size_hint().lower() > limit as u64 {
        return Err(Refusal::TooLarge { limit });
    }
    let read = tokio::time::timeout(limits.body_timeout.get(), Limited::new(body, limit).collect()).await;
    let read = read.map_err(|_| Refusal::Slow { ms: limits.body_timeout.get().as_millis() })?;
    read.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            Refusal::TooLarge { limit }
        } else {
            Refusal::Input(format!("the body cannot be read: {error}"))
        }
    })
}

/// Unpacks it, to no more than the limit however small it is packed.
pub(super) fn unpack(body: Bytes, packing: Packing, limits: &Limits) -> Result<Bytes, Refusal> {
    let limit = limits.max_body_bytes();
    let unpacked = match packing {
        Packing::Plain => return Ok(body),
        Packing::Gzip => gunzip(&body, limit),
        Packing::Zlib => inflate(&body, limit),
    };
    unpacked.map_err(|error| match error {
        GunzipError::TooLarge(limit) => Refusal::TooLarge { limit },
        GunzipError::Corrupt(error) => Refusal::Input(format!("the body cannot be unpacked: {error}")),
    })
}
