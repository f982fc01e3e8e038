//! The trace contexts other than `traceparent`, and which of them Lapwing writes: `auto`, `none`, or a list of names.

use std::fmt;
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// A way to pass a trace's context in a request's head, other than W3C's `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextKind {
    /// Zipkin's, in one field: `b3`.
    B3,
    /// Zipkin's, in several fields: `x-b3-traceid` and its like.
    B3Multi,
    /// Jaeger's: `uber-trace-id`.
    Jaeger,
    /// AWS X-Ray's: `x-amzn-trace-id`.
    XRay,
    /// Datadog's: `x-datadog-trace-id` and its like.
    Datadog,
}

impl ContextKind {
    /// All of them; of several in one request, an earlier one counts before a later one.
    pub const ALL: [Self; 5] = [Self::B3, Self::B3Multi, Self::Jaeger, Self::XRay, Self::Datadog];

    /// The name that `OTEL_PROPAGATORS` has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::B3 => "b3",
            Self::B3Multi => "b3multi",
            Self::Jaeger => "jaeger",
            Self::XRay => "xray",
            Self::Datadog => "datadog",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Several kinds of contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextSet(u8);

impl ContextSet {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// These.
    #[must_use]
    pub const fn of(kinds: &[ContextKind]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < kinds.len() {
            bits |= kinds[at].bit();
            at += 1;
        }
        Self(bits)
    }

    /// The set that [`Self::bits`] gave.
    #[must_use]
    pub const fn of_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The set as a number.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `kind` is in it.
    #[must_use]
    pub const fn has(self, kind: ContextKind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// Those that are in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are in it, in order.
    pub fn kinds(self) -> impl Iterator<Item = ContextKind> {
        ContextKind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}

/// The names, separated by commas.
impl fmt::Display for ContextSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.kinds().map(ContextKind::name).collect();
        f.write_str(&names.join(","))
    }
}

/// Which contexts Lapwing writes in addition to `traceparent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceContexts {
    /// Those that the client sent, and those that the upstream is found to continue. Text: `auto`.
    #[default]
    Auto,
    /// These, in every request, and no other. Text: names separated by commas, or `none`.
    Only(ContextSet),
}

const EXPECTED: &str = "must be auto, none, or names of b3, b3multi, jaeger, xray and datadog, separated by commas";

text_serde!(TraceContexts, "auto, none, or names separated by commas, as in b3,b3multi", {
    "title": "contexts", "type": "string",
    "pattern": r"^\s*(auto|none|(b3|b3multi|jaeger|xray|datadog)(\s*,\s*(b3|b3multi|jaeger|xray|datadog))*)\s*$",
    "examples": ["auto", "none", "b3,datadog"]
});

impl FromStr for TraceContexts {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.trim() {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::Only(ContextSet::NONE)),
            _ => {}
        }
        let mut set = ContextSet::NONE;
        for name in text.split(',').map(str::trim) {
            let kind = ContextKind::ALL.into_iter().find(|kind| kind.name() == name);
            set = set.or(ContextSet::of(&[kind.ok_or_else(|| Invalid::new(text, EXPECTED))?]));
        }
        Ok(Self::Only(set))
    }
}

impl fmt::Display for TraceContexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(set) if set.is_empty() => f.write_str("none"),
            Self::Only(set) => set.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_auto_none_or_names() {
        let read = |text: &str| text.parse::<TraceContexts>().unwrap();
        assert_eq!([read(" auto "), read("none")], [TraceContexts::Auto, TraceContexts::Only(ContextSet::NONE)]);
        assert_eq!(read("xray, b3"), TraceContexts::Only(ContextSet::of(&[ContextKind::B3, ContextKind::XRay])));
        for text in ["auto", "none", "b3,b3multi", "b3,b3multi,jaeger,xray,datadog"] {
            assert_eq!(read(text).to_string(), text);
        }
        for text in ["", "b4", "b3,", "B3", "off", "tracecontext", "auto,b3"] {
            assert!(text.parse::<TraceContexts>().is_err(), "{text}");
        }
    }

    #[test]
    fn sets_are_joined_and_cut() {
        let [one, two] =
            [[ContextKind::B3, ContextKind::Jaeger], [ContextKind::Jaeger, ContextKind::Datadog]].map(|k| ContextSet::of(&k));
        assert_eq!(one.and(two), ContextSet::of(&[ContextKind::Jaeger]));
        assert_eq!(one.or(two).kinds().count(), 3);
        assert_eq!(ContextSet::of_bits(one.bits()), one);
        assert!(one.has(ContextKind::B3) && !two.has(ContextKind::B3) && ContextSet::NONE.is_empty());
    }
}
