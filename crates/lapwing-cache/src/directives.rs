//! The directives of `Cache-Control` (RFC 9111, section 5.2) in requests and answers.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, PRAGMA};

/// What `Cache-Control` says. A directive that cannot be read counts as the stricter of its meanings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directives {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) private: bool,
    pub(crate) only_if_cached: bool,
    /// Seconds.
    pub(crate) max_age: Option<u64>,
    /// Seconds, for caches that several share.
    pub(crate) s_maxage: Option<u64>,
    /// Seconds.
    pub(crate) min_fresh: Option<u64>,
}

impl Directives {
    /// Those of a head. `Pragma: no-cache` counts where there is no `Cache-Control` (section 5.4).
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut all = Self::default();
        let mut is_there = false;
        for field in headers.get_all(CACHE_CONTROL) {
            is_there = true;
            // a comma in quotes only parts names of fields, which nobody looks at
            field.as_bytes().split(|byte| *byte == b',').for_each(|directive| all.note(directive.trim_ascii()));
        }
        let mut pragmas = headers.get_all(PRAGMA).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
        all.no_cache |= !is_there && pragmas.any(|pragma| pragma.trim_ascii().eq_ignore_ascii_case(b"no-cache"));
        all
    }

    fn note(&mut self, directive: &[u8]) {
        let (name, value) = match directive.iter().position(|byte| *byte == b'=') {
            Some(at) => (directive[..at].trim_ascii(), Some(directive[at + 1..].trim_ascii())),
            None => (directive, None),
        };
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let least = |known: Option<u64>, seconds: u64| Some(known.map_or(seconds, |known| known.min(seconds)));
        if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache = true;
        } else if is("private") {
            self.private = true;
        } else if is("only-if-cached") {
            self.only_if_cached = true;
        } else if is("max-age") {
            self.max_age = least(self.max_age, seconds(value).unwrap_or(0));
        } else if is("s-maxage") {
            self.s_maxage = least(self.s_maxage, seconds(value).unwrap_or(0));
        } else if is("min-fresh") {
            let asked = seconds(value).unwrap_or(u64::MAX);
            self.min_fresh = Some(self.min_fresh.map_or(asked, |known| known.max(asked)));
        }
    }
}

/// A whole number of seconds, perhaps in quotes; more than fit are the most that do.
pub(crate) fn seconds(value: Option<&[u8]>) -> Option<u64> {
    let value = value?;
    let digits = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |number: u64, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn of(fields: &[(&'static str, &'static str)]) -> Directives {
        let fields = fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        Directives::of(&headers)
    }

    #[test]
    fn directives_are_read_in_any_form() {
        let none = Directives::default();
        for (fields, expected) in [
            (&[("cache-control", "No-Store , x=1")][..], Directives { no_store: true, ..none }),
            (&[("cache-control", "a"), ("cache-control", "private=\"x, y\"")], Directives { private: true, ..none }),
            (&[("cache-control", "no-cache=\"set-cookie\"")], Directives { no_cache: true, ..none }),
            (&[("cache-control", "max-age=60, MAX-AGE = \"30\"")], Directives { max_age: Some(30), ..none }),
            (&[("cache-control", "max-age=soon")], Directives { max_age: Some(0), ..none }),
            (&[("cache-control", "s-maxage=99999999999999999999999")], Directives { s_maxage: Some(u64::MAX), ..none }),
            (&[("cache-control", "min-fresh=5, min-fresh")], Directives { min_fresh: Some(u64::MAX), ..none }),
            (&[("cache-control", "only-if-cached,,")], Directives { only_if_cached: true, ..none }),
            (&[("pragma", "a, No-Cache")], Directives { no_cache: true, ..none }),
            (&[("pragma", "no-cache"), ("cache-control", "max-age=1")], Directives { max_age: Some(1), ..none }),
            (&[("cache-control", "nostore, public")], none),
        ] {
            assert_eq!(of(fields), expected, "{fields:?}");
        }
    }
}
