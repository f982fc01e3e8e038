//! Processors by number: `auto`, or a list as in `0-3,6`, in the manner of `taskset`.

use std::fmt;
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// The highest number that is accepted.
const MOST: usize = 4095;

/// The processors that threads may be pinned to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cpus {
    /// The code that starts the thread chooses, possibly none. Text: `auto`.
    #[default]
    Auto,
    /// These numbers, in this order, each once.
    These(Vec<usize>),
}

text_serde!(Cpus, "auto, or processors by number, as in 0-3,6", {
    "title": "processors", "type": ["string", "integer"], "minimum": 0, "maximum": MOST,
    "pattern": r"^\s*(auto|[0-9]+(\s*-\s*[0-9]+)?(\s*,\s*[0-9]+(\s*-\s*[0-9]+)?)*)\s*$", "examples": ["auto", "0-3,6", 3]
});

impl Cpus {
    /// The numbers; none for `auto`.
    #[must_use]
    pub fn numbers(&self) -> &[usize] {
        match self {
            Self::Auto => &[],
            Self::These(numbers) => numbers,
        }
    }
}

impl FromStr for Cpus {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid =
            || Invalid::new(text, format!("must be auto, or processors by number up to {MOST}, none twice, as in 0-3,6"));
        if text.trim() == "auto" {
            return Ok(Self::Auto);
        }
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number <= MOST).ok_or_else(invalid);
            let (first, last) = (number(first)?, number(last)?);
            if first > last || (first..=last).any(|number| numbers.contains(&number)) {
                return Err(invalid());
            }
            numbers.extend(first..=last);
        }
        Ok(Self::These(numbers))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::These(numbers) = self else { return f.write_str("auto") };
        for (at, run) in numbers.chunk_by(|a, b| a + 1 == *b).enumerate() {
            f.write_str(if at > 0 { "," } else { "" })?;
            match run {
                [one] => write!(f, "{one}")?,
                [first, .., last] => write!(f, "{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_written_back() {
        for (text, shown, numbers) in [
            ("auto", "auto", vec![]),
            ("3", "3", vec![3]),
            ("0-2, 7,9-9", "0-2,7,9", vec![0, 1, 2, 7, 9]),
            ("4,1", "4,1", vec![4, 1]),
        ] {
            let cpus: Cpus = text.parse().unwrap();
            assert_eq!((cpus.to_string().as_str(), cpus.numbers()), (shown, &numbers[..]));
            assert_eq!(shown.parse::<Cpus>().unwrap(), cpus);
        }
        for wrong in ["", "a", "1-", "3-1", "1,1", "0-2,2", "-1", "5000", "0-99999999999"] {
            assert!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
    }
}
