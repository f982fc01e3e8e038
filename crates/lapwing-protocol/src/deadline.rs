//! How a request's head says how long the request may take: `grpc-timeout` in gRPC's text form (PROTOCOL-HTTP2.md: one to eight digits
//! and a unit), or a field with whole milliseconds. Times are nanoseconds.

use std::fmt::Write as _;

use arrayvec::ArrayString;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The field of gRPC.
pub static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The units of `grpc-timeout` with their nanoseconds, the finest first.
const UNITS: [(u8, u64); 6] =
    [(b'n', 1), (b'u', 1_000), (b'm', 1_000_000), (b'S', 1_000_000_000), (b'M', 60_000_000_000), (b'H', 3_600_000_000_000)];
/// The most digits of `grpc-timeout`, and the numbers that have more.
const GRPC_DIGITS: usize = 8;
const GRPC_LIMIT: u64 = 100_000_000;
/// The most digits of a number of milliseconds: 300 years.
const MILLIS_DIGITS: usize = 13;

/// How a field states a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineForm {
    /// One to eight digits and one of `H`, `M`, `S`, `m`, `u` and `n`.
    Grpc,
    /// Whole milliseconds.
    Millis,
}

impl DeadlineForm {
    /// The time that the field `name` states; `None` if there is no such field.
    ///
    /// # Errors
    ///
    /// If it is not in this form, or there are several.
    pub fn read(self, headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, MalformedDeadline> {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let parsed = self.parse(value.as_bytes()).filter(|_| values.next().is_none());
        parsed.map(Some).ok_or(MalformedDeadline)
    }

    /// The time that `text` states; `None` if it is not in this form.
    #[must_use]
    pub fn parse(self, text: &[u8]) -> Option<u64> {
        match self {
            Self::Grpc => {
                let (unit, digits) = text.split_last()?;
                let (_, unit_ns) = UNITS.into_iter().find(|(name, _)| name == unit)?;
                Some(number(digits, GRPC_DIGITS)?.saturating_mul(unit_ns))
            }
            Self::Millis => Some(number(text, MILLIS_DIGITS)?.saturating_mul(1_000_000)),
        }
    }

    /// The text of a time: at most that, and at least one of the finest unit.
    #[must_use]
    pub fn value(self, ns: u64) -> Option<HeaderValue> {
        let mut text = ArrayString::<24>::new();
        let written = match self {
            Self::Grpc => {
                let ns = ns.max(1);
                let (unit, unit_ns) = UNITS.into_iter().find(|(_, unit_ns)| ns / unit_ns < GRPC_LIMIT)?;
                write!(text, "{}{}", ns / unit_ns, char::from(unit))
            }
            Self::Millis => write!(text, "{}", (ns / 1_000_000).max(1)),
        };
        written.ok().and_then(|()| HeaderValue::from_str(&text).ok())
    }
}

/// A field that states a time in another form than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedDeadline;

/// The number that one to `most` digits are.
fn number(digits: &[u8], most: usize) -> Option<u64> {
    let is_number = (1..=most).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Writes what is left of `budget_ns` after `passed_ns` into the field `name`. A time that is longer than numbers here are stays as it is.
pub fn pass_rest(form: DeadlineForm, headers: &mut HeaderMap, name: &HeaderName, budget_ns: u64, passed_ns: u64) {
    if budget_ns < u64::MAX
        && let Some(value) = form.value(budget_ns.saturating_sub(passed_ns))
    {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn grpc_timeouts_are_read_as_its_specification_says() {
        let of = |text: &str| DeadlineForm::Grpc.parse(text.as_bytes());
        for (text, ns) in [
            ("1H", 3_600_000_000_000),
            ("2M", 120_000_000_000),
            ("3S", 3_000_000_000),
            ("250m", 250_000_000),
            ("00000007u", 7_000),
            ("99999999n", 99_999_999),
            ("0n", 0),
            ("99999999H", u64::MAX),
        ] {
            assert_eq!(of(text), Some(ns), "{text}");
        }
        for text in ["", "m", "1", "100000000n", "1 S", "-1S", "+1S", "1.5S", "1s", "1h", "1mS", " 1S", "1S ", "１S"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn milliseconds_are_digits_alone() {
        let of = |text: &str| DeadlineForm::Millis.parse(text.as_bytes());
        assert_eq!((of("250"), of("9999999999999")), (Some(250_000_000), Some(9_999_999_999_999_000_000)));
        assert!(["", "1.5", "1ms", "-1", " 1", "12345678901234"].into_iter().all(|text| of(text).is_none()));
    }

    #[test]
    fn several_fields_are_malformed() {
        let mut headers = HeaderMap::new();
        assert_eq!(DeadlineForm::Grpc.read(&headers, &GRPC_TIMEOUT), Ok(None));
        headers.append(&GRPC_TIMEOUT, HeaderValue::from_static("1S"));
        assert_eq!(DeadlineForm::Grpc.read(&headers, &GRPC_TIMEOUT), Ok(Some(1_000_000_000)));
        headers.append(&GRPC_TIMEOUT, HeaderValue::from_static("1S"));
        assert_eq!(DeadlineForm::Grpc.read(&headers, &GRPC_TIMEOUT), Err(MalformedDeadline));
    }

    #[test]
    fn what_is_left_is_passed_on() {
        let passed = |form: DeadlineForm, text: &'static str, ms: u64| {
            let mut headers = HeaderMap::from_iter([(GRPC_TIMEOUT.clone(), HeaderValue::from_static(text))]);
            let budget_ns = form.parse(text.as_bytes()).unwrap();
            pass_rest(form, &mut headers, &GRPC_TIMEOUT, budget_ns, ms * 1_000_000);
            headers[&GRPC_TIMEOUT].to_str().unwrap().to_owned()
        };
        assert_eq!(passed(DeadlineForm::Grpc, "1S", 250), "750000u");
        assert_eq!(passed(DeadlineForm::Grpc, "50m", 1), "49000000n");
        assert_eq!(passed(DeadlineForm::Grpc, "50m", 60), "1n");
        assert_eq!(passed(DeadlineForm::Grpc, "99999999H", 60), "99999999H");
        assert_eq!(passed(DeadlineForm::Millis, "100", 40), "60");
        assert_eq!(passed(DeadlineForm::Millis, "100", 400), "1");
    }

    proptest! {
        #[test]
        fn what_is_written_is_at_most_the_time_and_nearly_all_of_it(ns in 0_u64..u64::MAX) {
            let text = DeadlineForm::Grpc.value(ns).unwrap();
            let read = DeadlineForm::Grpc.parse(text.as_bytes()).unwrap();
            prop_assert!(read <= ns.max(1) && read >= ns - ns / 100_000, "{ns} {text:?}");
            let text = DeadlineForm::Millis.value(ns).unwrap();
            prop_assert_eq!(DeadlineForm::Millis.parse(text.as_bytes()), Some((ns / 1_000_000).max(1) * 1_000_000).filter(|_| text.len() <= 13));
        }

        #[test]
        fn no_text_is_read_as_more_than_it_says(text in "[0-9HMSmun .+-]{0,12}") {
            for form in [DeadlineForm::Grpc, DeadlineForm::Millis] {
                if let Some(ns) = form.parse(text.as_bytes()) {
                    let again = form.value(ns).unwrap();
                    let read = form.parse(again.as_bytes()).unwrap();
                    prop_assert!(ns == u64::MAX || read <= ns.max(1_000_000), "{text} {again:?}");
                }
            }
        }
    }
}
