//! A sampler of OpenTelemetry's SDKs, as text and as their environment variables name it.
//!
//! Names and defaults are those of the specification: `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>).

use std::fmt;
use std::str::FromStr;

use super::{Invalid, text::text_serde};

const PARENT_BASED: &str = "parentbased_";

/// A sampler: whether it respects a parent's decision, and what it decides about a trace that has no parent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceSampler {
    /// Whether a span with a parent is sampled if its parent is. Otherwise `root` decides about every span.
    pub is_parent_based: bool,
    /// What decides about a trace without a parent.
    pub root: RootSampler,
}

/// What decides about a trace without a parent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RootSampler {
    /// Every trace is sampled.
    AlwaysOn,
    /// No trace is sampled.
    AlwaysOff,
    /// This share of all traces is sampled, 0 to 1, chosen by the trace id.
    Ratio(f64),
}

text_serde!(TraceSampler, "a sampler, as in parentbased_always_on or parentbased_traceidratio:0.1", {
    "title": "sampler", "type": "string", "pattern": r"^\s*(parentbased_)?(always_on|always_off|traceidratio(:[-+.0-9eE]+)?)\s*$",
    "examples": ["parentbased_always_on", "parentbased_traceidratio:0.1"]
});

impl Default for TraceSampler {
    /// `parentbased_always_on`, as in the specification.
    fn default() -> Self {
        Self { is_parent_based: true, root: RootSampler::AlwaysOn }
    }
}

impl TraceSampler {
    /// Reads the values of `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG` as the SDKs do: without case, and with a ratio of 1
    /// where no argument is given.
    ///
    /// # Errors
    ///
    /// When the name is not known, or the argument is not a ratio. The SDKs then use their defaults, `parentbased_always_on` or a
    /// ratio of 1.
    pub fn from_variables(name: &str, argument: Option<&str>) -> Result<Self, Invalid> {
        let name = name.trim().to_ascii_lowercase();
        match argument.map(str::trim).filter(|argument| !argument.is_empty() && name.ends_with("traceidratio")) {
            Some(ratio) => format!("{name}:{ratio}").parse(),
            None => name.parse(),
        }
    }
}

impl FromStr for TraceSampler {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let (name, argument) = match text.trim().split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text.trim(), None),
        };
        let root = match (name.strip_prefix(PARENT_BASED).unwrap_or(name), argument) {
            ("always_on", None) => RootSampler::AlwaysOn,
            ("always_off", None) => RootSampler::AlwaysOff,
            ("traceidratio", ratio) => {
                let ratio = ratio.map_or(Ok(1.0), str::parse).ok().filter(|ratio| (0.0..=1.0).contains(ratio));
                RootSampler::Ratio(ratio.ok_or_else(|| invalid("needs a ratio from 0 to 1, as in parentbased_traceidratio:0.1"))?)
            }
            ("always_on" | "always_off", Some(_)) => return Err(invalid("takes no argument")),
            _ => {
                return Err(invalid(
                    "is not a sampler; the samplers are always_on, always_off and traceidratio:RATIO, each also with parentbased_ \
                     before it",
                ));
            }
        };
        Ok(Self { is_parent_based: name.starts_with(PARENT_BASED), root })
    }
}

impl fmt::Display for TraceSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_parent_based { PARENT_BASED } else { "" })?;
        match self.root {
            RootSampler::AlwaysOn => f.write_str("always_on"),
            RootSampler::AlwaysOff => f.write_str("always_off"),
            RootSampler::Ratio(ratio) => write!(f, "traceidratio:{ratio}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sampler_is_read_and_printed() {
        for text in ["always_on", "always_off", "traceidratio:0.25", "parentbased_always_on", "parentbased_traceidratio:1"] {
            assert_eq!(text.parse::<TraceSampler>().unwrap().to_string(), text);
        }
        assert_eq!(TraceSampler::default().to_string(), "parentbased_always_on");
        assert_eq!("traceidratio".parse::<TraceSampler>().unwrap().root, RootSampler::Ratio(1.0));
        for wrong in
            ["", "on", "xray", "always_on:1", "traceidratio:1.1", "traceidratio:-0.1", "traceidratio:NaN", "traceidratio:"]
        {
            assert!(wrong.parse::<TraceSampler>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_variables_are_read_as_sdks_read_them() {
        let read = |name, argument| TraceSampler::from_variables(name, argument).map(|sampler| sampler.to_string()).ok();
        assert_eq!(read("parentbased_traceidratio", Some(" 0.1 ")).as_deref(), Some("parentbased_traceidratio:0.1"));
        assert_eq!(read("TraceIdRatio", None).as_deref(), Some("traceidratio:1"));
        assert_eq!(read("always_off", Some("0.5")).as_deref(), Some("always_off"), "an argument that nobody asks for is ignored");
        assert_eq!((read("parentbased_jaeger_remote", Some("x")), read("traceidratio", Some("half"))), (None, None));
    }
}
