//! How the fields of a trace context are read and written, whatever its kind.

use http::{HeaderMap, HeaderName, HeaderValue};

use lapwing_ledger::{SpanId, TraceId};

/// What is written as a context.
#[derive(Clone, Copy, Debug)]
pub struct WrittenContext {
    /// The trace.
    pub trace: TraceId,
    /// Lapwing's span.
    pub span: SpanId,
    /// The client's span, if it has one.
    pub parent: Option<SpanId>,
    /// Whether the trace is sampled.
    pub sampled: bool,
}

/// The value of a field that comes once, without white space around it.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes().trim_ascii())
}

/// Writes a field that no other request has alike: HTTP/2 need not remember it for its header compression, at either end.
pub(crate) fn put(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(mut value) = HeaderValue::try_from(value) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

/// The `N` bytes of at most `2 N` hexadecimal digits in any case, zeros before them left out or not.
pub(crate) fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.is_empty() || text.len() > 2 * N {
        return None;
    }
    let mut out = [0_u8; N];
    for (place, digit) in text.iter().rev().enumerate() {
        let digit = u8::try_from(char::from(*digit).to_digit(16)?).ok()?;
        out[N - 1 - place / 2] |= digit << (4 * (place % 2));
    }
    Some(out)
}

/// A trace id of at most 32 digits.
pub(crate) fn trace_id(text: &[u8]) -> Option<TraceId> {
    TraceId::from_slice(&hex::<16>(text)?)
}

/// A span id of at most 16 digits.
pub(crate) fn span_id(text: &[u8]) -> Option<SpanId> {
    SpanId::from_slice(&hex::<8>(text)?)
}
