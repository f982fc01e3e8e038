//! How long a request waits for a shared Redis at most: `auto`, or a duration.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Invalid, Period, text::text_serde};

/// The longest deadline that follows from what a request takes.
const MOST: Duration = Duration::from_millis(5);
/// The part of what the model takes that may be spent on finding out whether it need not be asked.
const SHARE: u64 = 5;

/// How long a request waits for a shared Redis at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedisDeadline {
    /// 5 ms, or a fifth of what the model takes, whichever is less. Text: `auto`.
    #[default]
    Auto,
    /// So long.
    After(Period),
}

impl RedisDeadline {
    /// The deadline of a request for which the model takes `forward_ns`, as far as that is known.
    #[must_use]
    pub fn of(self, forward_ns: Option<u64>) -> Duration {
        match self {
            Self::Auto => forward_ns.map_or(MOST, |ns| Duration::from_nanos(ns / SHARE).min(MOST)),
            Self::After(period) => period.get(),
        }
    }

    /// The duration, unless it is `auto`.
    #[must_use]
    pub const fn after(&self) -> Option<&Period> {
        match self {
            Self::Auto => None,
            Self::After(period) => Some(period),
        }
    }
}

text_serde!(RedisDeadline, "auto or a duration, as in 5ms", {
    "title": "`auto` or duration", "type": "string", "pattern": r"^\s*(auto|[0-9.]+\s*[a-zµμ]+.*)\s*$", "examples": ["auto", "5ms"]
});

impl FromStr for RedisDeadline {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.trim() == "auto" {
            return Ok(Self::Auto);
        }
        let or_auto = |Invalid { value, reason }| Invalid { value, reason: format!("{reason}; or auto") };
        text.parse().map(Self::After).map_err(or_auto)
    }
}

impl fmt::Display for RedisDeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::After(period) => period.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_a_part_of_what_it_may_save() {
        let (auto, fixed): (RedisDeadline, RedisDeadline) = ("auto".parse().unwrap(), "2ms".parse().unwrap());
        assert_eq!(auto.of(None), MOST);
        assert_eq!(auto.of(Some(10_000_000)), Duration::from_millis(2));
        assert_eq!(auto.of(Some(1_000_000_000)), MOST);
        assert_eq!(fixed.of(Some(1)), Duration::from_millis(2));
        assert_eq!((auto.to_string(), fixed.to_string()), ("auto".to_owned(), "2ms".to_owned()));
        assert!("soon".parse::<RedisDeadline>().unwrap_err().reason.ends_with("; or auto"));
    }
}
