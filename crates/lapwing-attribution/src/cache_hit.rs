//! What a feature cache answered for a request, as the upstream says: by attributes of its spans, or by a field of its answer.
//!
//! By default an attribute counts whose name ends in `cache_hits` or `cache_misses` (numbers), or in `cache_hit` or `cache_miss` (a
//! boolean for one look-up), however it is spelt: `cache.hit`, `feature.cache_hits`. Nothing here claims time.

use arrayvec::ArrayVec;
use http::HeaderMap;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::span::{CacheLookups, IncomingSpan};
use lapwing_ledger::Circumstances;
use lapwing_settings::{Checks, FieldName, Switch};

/// A longer value of a field or an attribute is refused.
const MAX_VALUE_BYTES: usize = 256;
/// The names of attributes are compared by this many bytes at their end, without case, `-`, `_` and `.`.
const COMPARED_BYTES: usize = 32;
/// A longer name of an attribute cannot be configured.
const MAX_NAME_BYTES: usize = 256;

/// Where the upstream says what its feature cache answered, beyond the attributes that are known by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct CacheHitConfig {
    /// The span attribute in which your server says what its feature cache answered, if not by a known name (docs/REPORTING.md).
    pub span_attribute: Switch<String>,
    /// The header or trailer of the answer that says it.
    pub header: Switch<FieldName>,
}

impl CacheHitConfig {
    pub(crate) fn check(&self, checks: &mut Checks) {
        if let Some(name) = self.span_attribute.on()
            && !(1..=MAX_NAME_BYTES).contains(&name.len())
        {
            checks.fault("cache_hit.span_attribute", name, format!("must have 1 to {MAX_NAME_BYTES} bytes; or off"));
        }
    }
}

impl CacheLookups {
    const HIT: Self = Self { hits: 1, misses: 0 };
    const MISS: Self = Self { hits: 0, misses: 1 };

    const fn of(is_hit: bool) -> Self {
        if is_hit { Self::HIT } else { Self::MISS }
    }

    const fn is_empty(self) -> bool {
        self.hits == 0 && self.misses == 0
    }

    /// What the attributes of a span say. Numbers win over a boolean of the same span, and `configured` over every other name.
    pub(crate) fn of_span(attributes: &[KeyValue], configured: Option<&str>) -> Self {
        let (mut counts, mut single) = (Self::default(), Self::default());
        for attribute in attributes {
            let Some(value) = &attribute.value else { continue };
            if configured == Some(attribute.key.as_str()) {
                return said_by(value).unwrap_or_default();
            }
            match Meaning::of(&attribute.key) {
                Some(Meaning::Hits) => counts.hits = count(value),
                Some(Meaning::Misses) => counts.misses = count(value),
                Some(Meaning::IsHit) => single = boolean(value).map_or(single, Self::of),
                Some(Meaning::IsMiss) => single = boolean(value).map_or(single, |is_miss| Self::of(!is_miss)),
                None => {}
            }
        }
        if counts.is_empty() { single } else { counts }
    }

    /// What text says: `hit` or `miss` and their like, `12/16` (hits of look-ups), `hits=12, misses=4`, or a `Cache-Status` of RFC
    /// 9211. `None` if it is none of these.
    fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_VALUE_BYTES {
            return None;
        }
        if let Some((hits, lookups)) = text.split_once('/')
            && let (Ok(hits), Ok(lookups)) = (hits.trim().parse::<u32>(), lookups.trim().parse::<u32>())
        {
            return Some(Self { hits, misses: lookups.checked_sub(hits)? });
        }
        let (mut counts, mut single) = (Self::default(), None);
        let is_among = |word: &str, words: &[&str]| words.iter().any(|known| word.eq_ignore_ascii_case(known));
        for word in text.split([',', ';', ' ', '\t']).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((name, number)) if name.eq_ignore_ascii_case("hits") => counts.hits = number.parse().ok()?,
                Some((name, number)) if name.eq_ignore_ascii_case("misses") => counts.misses = number.parse().ok()?,
                Some((name, _)) if name.eq_ignore_ascii_case("fwd") => single = single.or(Some(Self::MISS)),
                // of several caches, one that had it is enough
                None if is_among(word, &["hit", "true", "yes", "1"]) => single = Some(Self::HIT),
                None if is_among(word, &["miss", "false", "no", "0", "expired", "bypass"]) => {
                    single = single.or(Some(Self::MISS));
                }
                _ => {}
            }
        }
        if counts.is_empty() { single } else { Some(counts) }
    }
}

/// What an attribute says by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Hits,
    Misses,
    IsHit,
    IsMiss,
}

impl Meaning {
    fn of(name: &str) -> Option<Self> {
        if !matches!(name.as_bytes().last()?, b't' | b's' | b'T' | b'S') {
            return None;
        }
        let mut reversed = ArrayVec::<u8, COMPARED_BYTES>::new();
        let folded = name.bytes().rev().filter(|b| !matches!(b, b'-' | b'_' | b'.')).map(|b| b.to_ascii_lowercase());
        reversed.extend(folded.take(COMPARED_BYTES));
        let ends = |end: &str| end.bytes().rev().eq(reversed.iter().copied().take(end.len()));
        [("cachehits", Self::Hits), ("cachemisses", Self::Misses), ("cachehit", Self::IsHit), ("cachemiss", Self::IsMiss)]
            .into_iter()
            .find_map(|(end, meaning)| ends(end).then_some(meaning))
    }
}

/// A number of features; what is none is zero, and what is too large the largest.
fn count(value: &AnyValue) -> u32 {
    match &value.value {
        Some(Value::IntValue(n)) => u32::try_from((*n).max(0)).unwrap_or(u32::MAX),
        Some(Value::StringValue(text)) => text.parse().unwrap_or_default(),
        _ => 0,
    }
}

fn boolean(value: &AnyValue) -> Option<bool> {
    match value.value.as_ref()? {
        Value::BoolValue(is_hit) => Some(*is_hit),
        Value::IntValue(n) => Some(*n != 0),
        Value::StringValue(text) => text.to_ascii_lowercase().parse().ok(),
        _ => None,
    }
}

/// What the value of the configured attribute says.
fn said_by(value: &AnyValue) -> Option<CacheLookups> {
    match value.value.as_ref()? {
        Value::StringValue(text) => CacheLookups::parse(text),
        _ => boolean(value).map(CacheLookups::of),
    }
}

/// Notes what the configured field of `headers` says; returns how many values it could not read. Costs one look-up, and none
/// where no field is configured.
pub(crate) fn report(headers: &HeaderMap, config: &CacheHitConfig, seen: &mut Circumstances) -> usize {
    let Some(value) = config.header.on().and_then(|name| headers.get(name.get())) else { return 0 };
    let Some(said) = value.to_str().ok().and_then(CacheLookups::parse) else { return 1 };
    (seen.cache_hits, seen.cache_misses) = (said.hits, said.misses);
    0
}

/// Notes what the spans of an exchange say together, unless its answer said it already.
pub(crate) fn note(spans: &[IncomingSpan], seen: &mut Circumstances) {
    if seen.cache_hits > 0 || seen.cache_misses > 0 {
        return;
    }
    for CacheLookups { hits, misses } in spans.iter().map(|span| span.cache) {
        seen.cache_hits = seen.cache_hits.saturating_add(hits);
        seen.cache_misses = seen.cache_misses.saturating_add(misses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(key: &str, value: Value) -> KeyValue {
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
    }

    fn of(attributes: &[(&str, Value)], configured: Option<&str>) -> (u32, u32) {
        let attributes: Vec<_> = attributes.iter().map(|(key, value)| attribute(key, value.clone())).collect();
        let CacheLookups { hits, misses } = CacheLookups::of_span(&attributes, configured);
        (hits, misses)
    }

    fn text(text: &str) -> Value {
        Value::StringValue(text.to_owned())
    }

    #[test]
    fn attributes_are_known_by_the_ends_of_their_names() {
        for (name, value, said) in [
            ("cache_hit", Value::BoolValue(true), (1, 0)),
            ("cache.hit", Value::BoolValue(false), (0, 1)),
            ("feature.CacheHit", text("True"), (1, 0)),
            ("cache_miss", Value::BoolValue(true), (0, 1)),
            ("feature.cache_hits", Value::IntValue(7), (7, 0)),
            ("lapwing.cache_misses", Value::IntValue(9), (0, 9)),
            ("cache.hits", Value::IntValue(-4), (0, 0)),
            ("cache.misses", Value::IntValue(i64::MAX), (0, u32::MAX)),
            ("cache_hit_ratio", Value::DoubleValue(0.5), (0, 0)),
            ("cache_hit", text("perhaps"), (0, 0)),
            ("hit", Value::BoolValue(true), (0, 0)),
            ("", Value::BoolValue(true), (0, 0)),
        ] {
            assert_eq!(of(&[(name, value)], None), said, "{name}");
        }
    }

    #[test]
    fn numbers_win_over_a_boolean_and_the_configured_name_over_both() {
        let both = [
            ("cache_hit", Value::BoolValue(false)),
            ("cache_hits", Value::IntValue(3)),
            ("cache_misses", Value::IntValue(1)),
            ("store.outcome", text("hits=5; misses=2")),
        ];
        assert_eq!(of(&both, None), (3, 1));
        assert_eq!(of(&both, Some("store.outcome")), (5, 2));
        assert_eq!(of(&both, Some("absent")), (3, 1));
    }

    #[test]
    fn a_fields_text_is_read_in_its_usual_forms_and_refused_otherwise() {
        for (said, lookups) in [
            ("HIT", Some((1, 0))),
            ("EXPIRED", Some((0, 1))),
            ("MISS, HIT", Some((1, 0))),
            ("ExampleCache; hit; ttl=376", Some((1, 0))),
            ("ExampleCache; fwd=uri-miss; stored", Some((0, 1))),
            ("12/16", Some((12, 4))),
            ("16/12", None),
            ("hits=12, misses=4", Some((12, 4))),
            ("misses=4", Some((0, 4))),
            ("hits=-1", None),
            ("dynamic", None),
            ("", None),
        ] {
            assert_eq!(CacheLookups::parse(said).map(|found| (found.hits, found.misses)), lookups, "{said}");
        }
        assert_eq!(CacheLookups::parse(&format!("hit{}", " ".repeat(MAX_VALUE_BYTES))), None);
    }

    #[test]
    fn only_the_configured_field_counts_and_what_it_cannot_mean_is_counted() {
        let headers: HeaderMap =
            [(http::HeaderName::from_static("x-features"), http::HeaderValue::from_static("3/4"))].into_iter().collect();
        let mut seen = Circumstances::default();
        assert_eq!(report(&headers, &CacheHitConfig::default(), &mut seen), 0);
        assert_eq!(seen, Circumstances::default());
        let named = |name: &str| CacheHitConfig { header: Switch::On(name.parse().unwrap()), ..CacheHitConfig::default() };
        assert_eq!(report(&headers, &named("X-Features"), &mut seen), 0);
        assert_eq!((seen.cache_hits, seen.cache_misses), (3, 1));
        let strange: HeaderMap =
            [(http::HeaderName::from_static("x-features"), http::HeaderValue::from_static("?"))].into_iter().collect();
        assert_eq!(report(&strange, &named("x-features"), &mut seen), 1);
        assert_eq!((seen.cache_hits, seen.cache_misses), (3, 1), "kept");
    }
}
