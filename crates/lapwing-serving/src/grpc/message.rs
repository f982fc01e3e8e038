//! Receives a call's message: whole, within the limits that REST has, and decompressed here, because what it may become depends on how
//! many bytes came; and counts what a `ModelInferRequest` would become before it is decoded: two bytes are an empty input, which takes
//! 450 when it is built.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::Request;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::request::Parts;
use http_body::Frame;
use http_body_util::StreamBody;
use prost::encoding::{WireType, decode_key, decode_varint};

use crate::body::{BodyShare, ReceivedBody, collect, unpack};
use crate::bounds::{MAX_AXES, MAX_PARAMETERS, MAX_TENSORS, expands, expansion};
use crate::error::{Bound, RequestError};
use crate::state::ServerState;
use lapwing_compression::ContentCoding;

/// The flag and the length before a message.
const PREFIX: usize = 5;
const ENCODING: &str = "grpc-encoding";

/// A call whose message is here.
pub(crate) struct ReceivedMessage {
    /// The request, uncompressed.
    pub(crate) request: Request,
    /// Bytes of the body as it came.
    pub(crate) received: usize,
    pub(crate) share: BodyShare,
}

/// Receives the body of a call. A compressed message that is broken, or not in gzip, is left to tonic, which knows the answer.
pub(crate) async fn receive(mut head: Parts, body: Body, shared: &ServerState) -> Result<ReceivedMessage, RequestError> {
    let limits = &shared.limits;
    let ReceivedBody { bytes, mut share } = collect(body, limits.max_body_bytes().saturating_add(PREFIX), limits, &shared.bodies)
        .await
        .map_err(|error| match error {
            RequestError::TooLarge { .. } => RequestError::TooLarge { limit: limits.max_body_bytes() },
            other => other,
        })?;
    let received = bytes.len();
    let is_gzip = head.headers.get(ENCODING).is_some_and(|name| name == "gzip");
    let packed = (is_gzip && bytes.first() == Some(&1)).then(|| bytes.get(PREFIX..)).flatten();
    let body = match packed {
        None => Body::from(bytes),
        Some(_) => {
            let packed = ReceivedBody { bytes: bytes.slice(PREFIX..), share };
            let (budget, limits) = (packed.share.another(), *limits);
            drop(bytes);
            let unpacked = tokio::task::spawn_blocking(move || unpack(packed, ContentCoding::Gzip.into(), &limits)).await;
            let unpacked = unpacked
                .unwrap_or_else(|error| Err(RequestError::Output(format!("the message could not be unpacked: {error}"))))?;
            share = budget;
            share.grow_to(unpacked.len())?;
            head.headers.remove(ENCODING);
            framed(unpacked)
        }
    };
    Ok(ReceivedMessage { request: Request::from_parts(head, body), received, share })
}

/// A body of one uncompressed message.
fn framed(message: Bytes) -> Body {
    let mut prefix = BytesMut::with_capacity(PREFIX);
    prefix.put_u8(0);
    // longer messages are above any limit
    prefix.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    let frames = [prefix.freeze(), message].map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    Body::new(StreamBody::new(stream::iter(frames)))
}

/// Fields of `ModelInferRequest`.
const ID: u32 = 3;
const PARAMETERS: u32 = 4;
const INPUTS: u32 = 5;
const OUTPUTS: u32 = 6;
const RAW: u32 = 7;
/// Fields of `InferInputTensor`; those of `InferRequestedOutputTensor` have its parameters at 2.
const SHAPE: u32 = 3;
const INPUT_PARAMETERS: u32 = 4;
const CONTENTS: u32 = 5;
const OUTPUT_PARAMETERS: u32 = 2;
/// `bytes_contents` of `InferTensorContents`, whose elements take more than their bytes.
const BYTES_CONTENTS: u32 = 8;

/// Checks a message whose body had `received` bytes before it was decompressed.
///
/// # Errors
///
/// [`RequestError::Bound`] and [`RequestError::Expansion`] name what exceeds a bound; [`RequestError::Input`] says that the message is
/// no protobuf.
pub(crate) fn check_counts(message: &[u8], received: usize) -> Result<(), RequestError> {
    let (mut inputs, mut outputs, mut raw, mut parameters) = (0, 0, 0, 0);
    let mut contents = 0_usize;
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field.number {
            ID => Bound::Id.check("id", field.bytes.len(), crate::bounds::MAX_ID)?,
            PARAMETERS => count(&mut parameters, Bound::Parameters, "parameters", MAX_PARAMETERS)?,
            INPUTS => {
                let place = format!("inputs[{inputs}]");
                count(&mut inputs, Bound::Tensors, "inputs", MAX_TENSORS)?;
                contents = contents.saturating_add(check_input(field.bytes, &place)?);
                if contents > expansion(received) {
                    return Err(expands(received));
                }
            }
            OUTPUTS => {
                let place = format!("outputs[{outputs}].parameters");
                count(&mut outputs, Bound::Tensors, "outputs", MAX_TENSORS)?;
                let (mut held, mut fields) = (0, Fields(field.bytes));
                while let Some(field) = fields.next()? {
                    if field.number == OUTPUT_PARAMETERS {
                        count(&mut held, Bound::Parameters, &place, MAX_PARAMETERS)?;
                    }
                }
            }
            RAW => count(&mut raw, Bound::Tensors, "raw_input_contents", MAX_TENSORS)?,
            _ => {}
        }
    }
    Ok(())
}

/// Counts one more. The error has the first count beyond the bound: nobody counts the rest.
fn count(counted: &mut usize, bound: Bound, field: &str, most: usize) -> Result<(), RequestError> {
    *counted += 1;
    bound.check(field, *counted, most)
}

/// Checks an input, and returns the bytes that its typed contents take: as the message's vector, and again as the tensor.
fn check_input(message: &[u8], place: &str) -> Result<usize, RequestError> {
    let (mut axes, mut parameters, mut bytes) = (0, 0, 0_usize);
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field.number {
            SHAPE => {
                axes += field.elements(1);
                Bound::Axes.check(&format!("{place}.shape"), axes, MAX_AXES)?;
            }
            INPUT_PARAMETERS => count(&mut parameters, Bound::Parameters, &format!("{place}.parameters"), MAX_PARAMETERS)?,
            CONTENTS => {
                let mut fields = Fields(field.bytes);
                while let Some(field) = fields.next()? {
                    // bytes of an element on the wire at least, and in memory
                    let (wire, memory) = match field.number {
                        1 => (1, 1),
                        2 | 4 => (1, 4),
                        3 | 5 => (1, 8),
                        6 => (4, 4),
                        7 => (8, 8),
                        BYTES_CONTENTS => {
                            // in the message a reference to its bytes, in the tensor they and their length
                            let memory = 2 * size_of::<Bytes>() + 4 + field.bytes.len();
                            bytes = bytes.saturating_add(memory);
                            continue;
                        }
                        _ => continue,
                    };
                    bytes = bytes.saturating_add(field.elements(wire).saturating_mul(2 * memory));
                }
            }
            _ => {}
        }
    }
    Ok(bytes)
}

/// A field of a message.
struct Field<'a> {
    number: u32,
    /// Empty unless the field has a length.
    bytes: &'a [u8],
    has_length: bool,
}

impl Field<'_> {
    /// Elements of a repeated number, packed or not: `wire` is the size of one, or 1 for a varint.
    fn elements(&self, wire: usize) -> usize {
        match (self.has_length, wire) {
            (false, _) => 1,
            // the last byte of each varint has no high bit
            (true, 1) => self.bytes.iter().filter(|byte| **byte < 0x80).count(),
            (true, _) => self.bytes.len() / wire,
        }
    }
}

/// The fields of a message, in order, without building any.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<Field<'a>>, RequestError> {
        let fails = |reason: &str| RequestError::Input(format!("the message cannot be read: {reason}"));
        if self.0.is_empty() {
            return Ok(None);
        }
        let (number, wire) = decode_key(&mut self.0).map_err(|error| fails(&error.to_string()))?;
        let length = match wire {
            WireType::Varint => {
                decode_varint(&mut self.0).map_err(|error| fails(&error.to_string()))?;
                0
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.0).map_err(|error| fails(&error.to_string()))?;
                usize::try_from(length).unwrap_or(usize::MAX)
            }
            WireType::StartGroup | WireType::EndGroup => return Err(fails("it has a group, and the protocol has none")),
        };
        if length > self.0.len() {
            return Err(fails("a field is longer than the message"));
        }
        let bytes = &self.0[..length];
        self.0.advance(length);
        let has_length = wire == WireType::LengthDelimited;
        Ok(Some(Field { number, bytes: if has_length { bytes } else { &[] }, has_length }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &[u8]) -> String {
        check_counts(message, message.len()).map_or_else(|error| error.to_string(), |()| "fine".into())
    }

    #[test]
    fn elements_are_counted_where_they_are_repeated() {
        assert_eq!(refused(&b"\x2a\x00".repeat(MAX_TENSORS)), "fine");
        assert_eq!(refused(&b"\x2a\x00".repeat(4_000_000)), "inputs: 1025 is above the bound, which is 1024");
        assert_eq!(refused(&b"\x32\x00".repeat(2000)), "outputs: 1025 is above the bound, which is 1024");
        assert_eq!(refused(&b"\x3a\x00".repeat(2000)), "raw_input_contents: 1025 is above the bound, which is 1024");
        assert_eq!(refused(&b"\x22\x00".repeat(65)), "parameters: 65 is above the bound, which is 64");
        let long = [&b"\x2a\x23\x1a\x21"[..], &[1; 33]].concat();
        assert_eq!(refused(&long), "inputs[0].shape: 33 is above the bound, which is 32");
        let unpacked = [&b"\x2a\x42"[..], &b"\x18\x01".repeat(33)].concat();
        assert_eq!(refused(&unpacked), "inputs[0].shape: 33 is above the bound, which is 32");
    }

    #[test]
    fn typed_contents_may_take_a_multiple_of_the_received_bytes() {
        let zeros = vec![0; 2 << 20]; // of int64_contents: 8 bytes each, twice
        let mut contents = b"\x1a\x80\x80\x80\x01".to_vec();
        contents.extend(&zeros);
        let mut input = b"\x2a\x85\x80\x80\x01".to_vec();
        input.splice(1.., {
            let mut tail = vec![0x8a, 0x80, 0x80, 0x01, 0x2a, 0x85, 0x80, 0x80, 0x01];
            tail.extend(contents);
            tail
        });
        assert!(check_counts(&input, input.len()).is_ok());
        assert!(matches!(check_counts(&input, 1000), Err(RequestError::Expansion { received: 1000, .. })));
    }

    #[test]
    fn what_is_no_protobuf_is_refused() {
        for broken in [&b"\xff\xff\xff"[..], b"\x2a\x05\x00", b"\x2b\x2c", b"\x2a"] {
            assert!(refused(broken).starts_with("the message cannot be read: "), "{broken:?}");
        }
    }
}
