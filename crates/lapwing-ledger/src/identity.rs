//! Trace identity in the W3C Trace Context format: ids, and the `traceparent` field (version 00, 55 bytes).
//!
//! See <https://www.w3.org/TR/trace-context/#traceparent-header>.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// A 16-byte trace id; all zero is invalid.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub [u8; 16]);

/// An 8-byte span id; all zero is invalid.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// A random id.
    #[must_use]
    pub fn random() -> Self {
        let id: u128 = rand::random();
        Self(id.max(1).to_be_bytes())
    }

    /// The id in an OTLP `trace_id` field; `None` unless it has 16 bytes that are not all zero.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        <[u8; 16]>::try_from(bytes).ok().filter(|b| *b != [0; 16]).map(Self)
    }

    /// The id that [`Display`](fmt::Display) shows: 32 digits, in lower case; `None` if they are not, or all zero.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut id = [0; 16];
        let decoded = (text.len() == 32).then(|| decode(text.as_bytes(), &mut id)).flatten();
        decoded.and_then(|()| Self::from_slice(&id))
    }
}

impl SpanId {
    /// A random id.
    #[must_use]
    pub fn random() -> Self {
        let id: u64 = rand::random();
        Self(id.max(1).to_be_bytes())
    }

    /// The id in an OTLP `span_id` field; `None` unless it has 8 bytes that are not all zero.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        <[u8; 8]>::try_from(bytes).ok().filter(|b| *b != [0; 8]).map(Self)
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Lower-case hexadecimal digits, as both are written.
macro_rules! hexadecimal {
    ($name:ident, $about:literal, $pattern:literal) => {
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "description": $about, "pattern": $pattern})
            }
        }
    };
}

hexadecimal!(TraceId, "A trace's id.", "^[0-9a-f]{32}$");
hexadecimal!(SpanId, "A span's id.", "^[0-9a-f]{16}$");

impl Serialize for SpanId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// A context other than `traceparent` that was passed to the upstream: spans below it belong to the same exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedContext {
    /// Its trace.
    pub trace: TraceId,
    /// The span that the upstream takes for its parent.
    pub span: SpanId,
    /// Whether that is the client's span, which other requests may name too; else it is Lapwing's, of this request and this context alone.
    pub is_clients: bool,
    /// Its kind, as the bits of a `ContextSet`.
    pub kind: u8,
}

/// A process's private mark in the trace ids that it creates. It distinguishes a trace that is sampled only for Lapwing from the user's
/// own traces by the id alone, without a table that would need a bound.
///
/// The right half of an id is random, as the specification requires; the left half is a keyed hash of it.
#[derive(Clone, Copy, Debug)]
pub struct TraceMark(u64);

/// Makes the key of root spans another one than the key of trace ids (the golden ratio, as in SplitMix64).
const ROOT_SPAN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The left and the right half of a trace id.
const fn halves(trace: TraceId) -> (u64, u64) {
    let id = u128::from_be_bytes(trace.0);
    ((id >> 64) as u64, id as u64)
}

impl TraceMark {
    /// A mark that no other process shares.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// A fresh trace id that carries the mark.
    #[must_use]
    pub fn make(self) -> TraceId {
        let right: u64 = rand::random::<u64>().max(1);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.left(right).to_be_bytes());
        id[8..].copy_from_slice(&right.to_be_bytes());
        TraceId(id)
    }

    /// Whether [`Self::make`] created `trace`; wrong once in 2^64 ids.
    #[must_use]
    pub fn made(self, trace: TraceId) -> bool {
        let (left, right) = halves(trace);
        self.left(right) == left
    }

    /// The id of Lapwing's span in a trace that [`Self::make`] created. It follows from the trace id, so that the span is known
    /// again without a table.
    #[must_use]
    pub const fn root_span(self, trace: TraceId) -> SpanId {
        let id = Self(self.0 ^ ROOT_SPAN).left(halves(trace).1);
        SpanId(if id == 0 { 1 } else { id }.to_be_bytes())
    }

    /// The finaliser of SplitMix64 over the keyed half.
    const fn left(self, right: u64) -> u64 {
        let mut z = right ^ self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The content of a `traceparent` field: the trace, the parent span, and whether the trace is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The sender's span.
    pub span: SpanId,
    /// The flags byte as received; bit 0 is "sampled", the other bits are passed on.
    pub flags: u8,
}

impl TraceContext {
    /// Bit 0 of the flags.
    pub const SAMPLED: u8 = 1;

    /// Reads a `traceparent` value; `None` if the specification says to start a new trace.
    ///
    /// For a version above 00 only the first 55 bytes are read, and a dash must follow them, as the specification requires.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let version = *byte(value.get(0..2)?)?.first()?;
        let well_formed = value.get(2) == Some(&b'-') && value.get(35) == Some(&b'-') && value.get(52) == Some(&b'-');
        let length_fits = match version {
            0xff => false,
            0 => value.len() == 55,
            _ => value.len() == 55 || value.get(55) == Some(&b'-'),
        };
        if !well_formed || !length_fits {
            return None;
        }
        let mut trace = [0; 16];
        let mut span = [0; 8];
        decode(value.get(3..35)?, &mut trace)?;
        decode(value.get(36..52)?, &mut span)?;
        let flags = *byte(value.get(53..55)?)?.first()?;
        Some(Self { trace: TraceId::from_slice(&trace)?, span: SpanId::from_slice(&span)?, flags })
    }

    /// Whether the sampled bit is set.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & Self::SAMPLED != 0
    }

    /// The value of the `traceparent` field (version 00).
    #[must_use]
    pub fn to_field(&self) -> [u8; 55] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut out = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let mut put = |at: usize, bytes: &[u8]| {
            for (pair, b) in out[at..].chunks_exact_mut(2).zip(bytes) {
                pair[0] = DIGITS[usize::from(b >> 4)];
                pair[1] = DIGITS[usize::from(b & 15)];
            }
        };
        put(3, &self.trace.0);
        put(36, &self.span.0);
        put(53, &[self.flags]);
        out
    }
}

fn byte(pair: &[u8]) -> Option<[u8; 1]> {
    let mut out = [0];
    decode(pair, &mut out)?;
    Some(out)
}

/// Decodes lower-case hexadecimal only, as the specification requires.
fn decode(text: &[u8], out: &mut [u8]) -> Option<()> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    for (pair, b) in text.chunks_exact(2).zip(out) {
        *b = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_good_field_is_read_and_written_back() {
        let c = TraceContext::parse(GOOD).unwrap();
        assert!(c.is_sampled());
        assert_eq!(c.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(&c.to_field()[..], GOOD);
    }

    #[test]
    fn a_mark_knows_its_own_ids_only() {
        let (mine, other) = (TraceMark(7), TraceMark(8));
        let id = mine.make();
        assert!(mine.made(id) && !other.made(id));
        assert!(!mine.made(TraceId::random()));
        let (root, next) = (mine.root_span(id), mine.root_span(mine.make()));
        assert_eq!(root, mine.root_span(id));
        assert!(root != next && root != other.root_span(id) && root.0 != [0; 8]);
    }

    #[test]
    fn what_the_specification_refuses_is_refused() {
        for bad in [
            &b""[..],
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            b"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            b"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
            b"00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        assert!(TraceContext::parse(b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what").is_some());
        assert!(TraceContext::parse(b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what").is_none());
    }
}
