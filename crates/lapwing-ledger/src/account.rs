//! The result of the law of time: the nanoseconds that each stage owns, by source.

use std::fmt::Write;

use super::stage::{Phase, Source, Stage};

/// Nanoseconds by stage and source. Over one exchange they sum to its total, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    ns: [[u64; Source::COUNT]; Stage::COUNT],
    /// Parts of forward and of queue.
    phases: [[u64; Source::COUNT]; Phase::COUNT],
}

impl Account {
    /// Adds `ns` to `stage`, as reported by `source`.
    #[inline]
    pub const fn add(&mut self, stage: Stage, source: Source, ns: u64) {
        self.ns[stage.index()][source.index()] += ns;
    }

    /// Records that `ns` of the time of its stage belong to `phase`.
    #[inline]
    pub const fn add_phase(&mut self, phase: Phase, source: Source, ns: u64) {
        self.phases[phase.index()][source.index()] += ns;
    }

    /// The time of `phase` within its stage, from all sources.
    #[must_use]
    #[inline]
    pub fn phase_ns(&self, phase: Phase) -> u64 {
        self.phases[phase.index()].iter().sum()
    }

    /// The source of most of the time of `phase`; `None` if the phase owns no time.
    #[must_use]
    #[inline]
    pub fn phase_source(&self, phase: Phase) -> Option<Source> {
        most(&self.phases[phase.index()])
    }

    /// The time of `stage`, from all sources.
    #[must_use]
    #[inline]
    pub fn stage_ns(&self, stage: Stage) -> u64 {
        self.ns[stage.index()].iter().sum()
    }

    /// The time of `stage` that comes from `source`.
    #[must_use]
    #[inline]
    pub const fn by_source_ns(&self, stage: Stage, source: Source) -> u64 {
        self.ns[stage.index()][source.index()]
    }

    /// The source of most of the time of `stage`, the stronger one on a tie; `None` if the stage owns no time.
    #[must_use]
    #[inline]
    pub fn source(&self, stage: Stage) -> Option<Source> {
        most(&self.ns[stage.index()])
    }

    /// How much time another account of the same exchange gives to other stages.
    #[must_use]
    #[inline]
    pub fn moved_ns(&self, other: &Self) -> u64 {
        Stage::ALL.into_iter().map(|stage| self.stage_ns(stage).saturating_sub(other.stage_ns(stage))).sum()
    }

    /// The stages that own time and are `shown`, as the value of a `Server-Timing` field (W3C): `forward;dur=11.300000`, in milliseconds,
    /// joined by commas.
    #[must_use]
    #[inline]
    pub fn server_timing(&self, shown: impl Fn(Stage) -> bool) -> String {
        let stages = Stage::ALL.into_iter().filter(|stage| self.source(*stage).is_some() && shown(*stage));
        server_timing(stages.map(|stage| (stage, self.stage_ns(stage), None)))
    }

    /// The sum over all stages.
    #[must_use]
    #[inline]
    pub fn total_ns(&self) -> u64 {
        self.ns.iter().flatten().sum()
    }
}

/// The value of a `Server-Timing` field (W3C Server Timing): of each stage its nanoseconds as milliseconds, and, as `desc`, whose word that
/// is, where it is given.
#[must_use]
pub fn server_timing(stages: impl IntoIterator<Item = (Stage, u64, Option<Source>)>) -> String {
    let mut text = String::with_capacity(160);
    for (stage, ns, source) in stages {
        let comma = if text.is_empty() { "" } else { ", " };
        // writing to a string cannot fail
        let _ = write!(text, "{comma}{};dur={}.{:06}", stage.name(), ns / 1_000_000, ns % 1_000_000);
        if let Some(source) = source {
            let _ = write!(text, ";desc=\"{}\"", source.name());
        }
    }
    text
}

/// The first source with the most time, if there is any.
#[inline]
fn most(row: &[u64; Source::COUNT]) -> Option<Source> {
    let (mut found, mut most_ns) = (None, 0);
    for source in &Source::ALL {
        if row[source.index()] > most_ns {
            (found, most_ns) = (Some(*source), row[source.index()]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_timing_is_in_milliseconds_and_says_whose_word_it_is() {
        let stages = [(Stage::Queue, 1_500, None), (Stage::Forward, 11_300_000, Some(Source::Reported))];
        assert_eq!(server_timing(stages), "queue;dur=0.001500, forward;dur=11.300000;desc=\"reported\"");
        assert_eq!(server_timing([]), "");
    }

    #[test]
    fn the_source_is_who_speaks_for_most() {
        let mut a = Account::default();
        assert_eq!(a.source(Stage::Queue), None);
        a.add(Stage::Queue, Source::Traced, 3);
        a.add(Stage::Queue, Source::Observed, 2);
        assert_eq!(a.source(Stage::Queue), Some(Source::Traced));
        a.add(Stage::Queue, Source::Observed, 1);
        assert_eq!(a.source(Stage::Queue), Some(Source::Observed));
        assert_eq!((a.stage_ns(Stage::Queue), a.total_ns()), (6, 6));
    }
}
