//! The numbers that features are, and how they are written into a body.

use std::fmt;
use std::fmt::Write as _;

use crate::types::FeatureDatatype;

/// A number as a store has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FeatureNumber {
    /// An integer.
    Integer(i64),
    /// A floating-point number of 32 bits. Its shortest decimal form is another than that of the same number in 64.
    Single(f32),
    /// One of 64 bits.
    Double(f64),
}

/// The numbers of one feature of one entity.
pub(crate) type Found = Result<Vec<FeatureNumber>, LookupMiss>;

/// Why there is no number for a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupMiss {
    /// The store has none.
    Absent,
    /// What the store has is no number, or none that the datatype can hold.
    NotNumber,
    /// The store has another number of numbers.
    Width,
    /// What the store has is older than `max_age`.
    Stale,
}

impl fmt::Display for LookupMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "the store has none",
            Self::NotNumber => "the store's is no number of its datatype",
            Self::Width => "the store's has another width",
            Self::Stale => "the store's is older than max_age",
        })
    }
}

impl FeatureNumber {
    /// The number that `text` is.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(integer) = text.parse() {
            return Some(Self::Integer(integer));
        }
        match text {
            "true" | "True" => Some(Self::Integer(1)),
            "false" | "False" => Some(Self::Integer(0)),
            // Rust reads names of what is no number, too
            text => text.parse().ok().filter(|number: &f64| number.is_finite()).map(Self::Double),
        }
    }

    /// Writes it as JSON of the datatype `of`. What that cannot hold is not written: what is infinite or no number, and for integers what is
    /// not whole or too large.
    pub(crate) fn write(self, of: FeatureDatatype, json: &mut String) -> Result<(), LookupMiss> {
        match of {
            FeatureDatatype::Fp32 => write_float(self.single(), json),
            FeatureDatatype::Fp64 => write_float(self.double(), json),
            FeatureDatatype::Int32 => {
                self.whole().and_then(|number| i32::try_from(number).ok()).map(|number| write!(json, "{number}"))
            }
            FeatureDatatype::Int64 => self.whole().map(|number| write!(json, "{number}")),
        }
        .and_then(Result::ok)
        .ok_or(LookupMiss::NotNumber)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "that is what the datatype asks for")]
    const fn single(self) -> f32 {
        match self {
            Self::Integer(number) => number as f32,
            Self::Single(number) => number,
            Self::Double(number) => number as f32,
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "that is what the datatype asks for")]
    const fn double(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Single(number) => number as f64,
            Self::Double(number) => number,
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "within the bounds that are tested")]
    fn whole(self) -> Option<i64> {
        const BOUND: f64 = 9_223_372_036_854_775_808.0;
        match self {
            Self::Integer(number) => Some(number),
            Self::Single(_) | Self::Double(_) => {
                let number = self.double();
                (number.fract() == 0.0 && (-BOUND..BOUND).contains(&number)).then_some(number as i64)
            }
        }
    }
}

/// Whether `number` is one of `of`.
pub(crate) fn fits(number: f64, of: FeatureDatatype) -> bool {
    FeatureNumber::Double(number).write(of, &mut String::new()).is_ok()
}

/// Writes a number in its shortest form; `None` if JSON has none.
fn write_float<N: Copy + Into<f64> + serde::Serialize>(number: N, json: &mut String) -> Option<fmt::Result> {
    if !number.into().is_finite() {
        return None;
    }
    Some(json.write_str(&serde_json::to_string(&number).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_their_datatype_has_them() {
        let written = |number: FeatureNumber, of| {
            let mut json = String::new();
            number.write(of, &mut json).map(|()| json)
        };
        let parsed = |text: &str| FeatureNumber::parse(text).unwrap();
        for (number, of, json) in [
            (FeatureNumber::Single(0.1), FeatureDatatype::Fp32, "0.1"),
            (FeatureNumber::Double(0.1), FeatureDatatype::Fp32, "0.1"),
            (FeatureNumber::Single(0.1), FeatureDatatype::Fp64, "0.10000000149011612"),
            (FeatureNumber::Integer(5), FeatureDatatype::Fp32, "5.0"),
            (FeatureNumber::Double(5.0), FeatureDatatype::Int64, "5"),
            (parsed(" 1e-3 "), FeatureDatatype::Fp64, "0.001"),
            (parsed("-9223372036854775808"), FeatureDatatype::Int64, "-9223372036854775808"),
            (parsed("True"), FeatureDatatype::Int32, "1"),
        ] {
            assert_eq!(written(number, of), Ok(json.to_owned()));
        }
        for (number, of) in [
            (FeatureNumber::Double(1e300), FeatureDatatype::Fp32),
            (FeatureNumber::Single(f32::NAN), FeatureDatatype::Fp64),
            (FeatureNumber::Double(0.5), FeatureDatatype::Int64),
            (FeatureNumber::Double(9_223_372_036_854_775_808.0), FeatureDatatype::Int64),
            (FeatureNumber::Integer(1 << 40), FeatureDatatype::Int32),
        ] {
            assert_eq!(written(number, of), Err(LookupMiss::NotNumber), "{number:?}");
        }
        for none in ["", "x", "nan", "inf", "-infinity", "1 2"] {
            assert_eq!(FeatureNumber::parse(none), None, "{none}");
        }
    }
}
