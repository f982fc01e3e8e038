//! Reads protobuf messages field by field, in place. Nothing is built, so what a message holds can be counted first.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

/// The fields of `message` in order: the number of each, and its bytes if it is a text, bytes or a message. Ends after an error.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = Result<(u32, Option<&[u8]>), DecodeError>> {
    std::iter::from_fn(move || {
        if message.is_empty() {
            return None;
        }
        let field = next(&mut message);
        if field.is_err() {
            message = &[];
        }
        Some(field)
    })
}

/// The bytes of every field `number` of `message`.
pub(crate) fn messages(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], DecodeError>> {
    fields(message).filter_map(move |field| match field {
        Ok((found, bytes)) => bytes.filter(|_| found == number).map(Ok),
        Err(error) => Some(Err(error)),
    })
}

fn next<'a>(message: &mut &'a [u8]) -> Result<(u32, Option<&'a [u8]>), DecodeError> {
    let (number, wire_type) = decode_key(message)?;
    let whole = *message;
    skip_field(wire_type, number, message, DecodeContext::default())?;
    if wire_type != WireType::LengthDelimited {
        return Ok((number, None));
    }
    let mut bytes = &whole[..whole.len() - message.len()];
    decode_varint(&mut bytes)?;
    Ok((number, Some(bytes)))
}

/// Appends a field with a length to `out`.
pub(crate) fn put_delimited(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
