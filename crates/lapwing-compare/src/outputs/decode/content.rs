//! The content of a body: its pieces joined, its encoding decoded, gRPC messages taken out of their frames; and why a body cannot be
//! decoded.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::super::answer::FinishedAnswer;
use lapwing_compression::{Codings, UnpackError, unpack};

/// The most messages of a gRPC body that are read.
const MAX_MESSAGES: usize = 65_536;

/// Why a body cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum AnswerDecodeError {
    /// It is larger than the limit.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// The content encoding is unknown.
    #[error("content encoding {0} is not read")]
    Encoding(String),
    /// It is not in the format that its head announces.
    #[error("{0}")]
    Malformed(String),
}

impl AnswerDecodeError {
    pub(crate) fn malformed(reason: impl Into<String>) -> Self {
        Self::Malformed(reason.into())
    }
}

/// The whole body, decompressed to at most `limit` bytes.
pub(crate) fn body(answer: &FinishedAnswer<'_>, limit: usize) -> Result<Bytes, AnswerDecodeError> {
    whole(answer.headers, answer.body, limit)
}

/// The body of a message in one piece, decompressed to at most `limit` bytes.
///
/// # Errors
///
/// `AnswerDecodeError`: it is larger, corrupt, or in an unknown encoding.
pub fn whole(headers: &HeaderMap, pieces: &[Bytes], limit: usize) -> Result<Bytes, AnswerDecodeError> {
    let length = pieces.iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.len()));
    if length > limit {
        return Err(AnswerDecodeError::TooLarge(limit));
    }
    let body = match pieces {
        [one] => one.clone(),
        pieces => {
            let mut joined = BytesMut::with_capacity(length);
            pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
            joined.freeze()
        }
    };
    let codings = Codings::of(headers).map_err(|unknown| AnswerDecodeError::Encoding(unknown.0))?;
    if codings.is_plain() { Ok(body) } else { decompressed(&codings, &body, limit) }
}

fn decompressed(codings: &Codings, body: &Bytes, limit: usize) -> Result<Bytes, AnswerDecodeError> {
    unpack(codings, body, limit).map_err(|error| match error {
        UnpackError::TooLarge(limit) => AnswerDecodeError::TooLarge(limit),
        UnpackError::Corrupt(error) => AnswerDecodeError::malformed(format!("not compressed as announced: {error}")),
    })
}

/// The messages of a gRPC body, each decompressed; together at most `limit` bytes.
///
/// # Errors
///
/// If the body is not framed as gRPC, a message cannot be decompressed, or they are larger.
pub fn grpc_messages(answer: &FinishedAnswer<'_>, body: &Bytes, limit: usize) -> Result<Vec<Bytes>, AnswerDecodeError> {
    let (mut messages, mut rest, mut left) = (Vec::new(), body.clone(), limit);
    let coding = || Codings::named(grpc_encoding(answer.headers)).map_err(|unknown| AnswerDecodeError::Encoding(unknown.0));
    while !rest.is_empty() {
        let Some(([flag, length @ ..], _)) = rest.split_first_chunk::<5>() else {
            return Err(AnswerDecodeError::malformed("a gRPC frame is cut off"));
        };
        let (is_compressed, length) = (*flag == 1, u32::from_be_bytes(*length) as usize);
        if *flag > 1 {
            return Err(AnswerDecodeError::malformed("not framed as gRPC"));
        }
        let mut frame = rest.split_off(5);
        if length > frame.len() || messages.len() == MAX_MESSAGES {
            return Err(AnswerDecodeError::malformed("a gRPC message is cut off, or there are too many"));
        }
        rest = frame.split_off(length);
        let message = if is_compressed { decompressed(&coding()?, &frame, left)? } else { frame };
        left = left.saturating_sub(message.len());
        messages.push(message);
    }
    Ok(messages)
}

fn grpc_encoding(headers: &HeaderMap) -> &[u8] {
    headers.get("grpc-encoding").map_or(b"unknown", http::HeaderValue::as_bytes)
}
