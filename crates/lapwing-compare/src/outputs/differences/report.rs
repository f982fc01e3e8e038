//! The account as text for people: "Outputs agree within 1e-3 in 99.98 % of 12,400 answers; the 3 that differ: …".

use std::fmt;

use super::super::comparison::DifferenceKind;
use super::super::config::Tolerance;
use super::snapshot::{DifferencesSnapshot, FieldSnapshot, MismatchSnapshot, OutputsVerdict};
use super::tally::WorstCase;

/// How many fields are named.
const FIELDS: usize = 10;

impl fmt::Display for DifferencesSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        let blamed = |field: &&FieldSnapshot| field.kinds.iter().any(|kind| kind.blamed > 0);
        for field in self.fields.iter().filter(blamed).take(FIELDS) {
            self.write_field(f, field)?;
        }
        match self.fields.iter().filter(blamed).count().saturating_sub(FIELDS) {
            0 => {}
            more => write!(f, "\n  and {more} more fields")?,
        }
        self.write_errors(f)?;
        self.write_noise(f)?;
        self.write_unjudged(f)?;
        let mut incomparable = self.incomparable.iter().filter(|(_, pairs)| **pairs > 0);
        incomparable.try_for_each(|(reason, pairs)| write!(f, "\nNot compared: {} ({reason}).", grouped(*pairs)))
    }
}

/// A reason in words, as in the first sentence.
fn in_words(reason: &str) -> &str {
    match reason {
        "upstream_varies" => "the upstream's own answers differ as much",
        "too_few_repeats" => "the upstream was asked twice too rarely to know its own noise",
        "noise_not_measured" => "the upstream is not asked twice, and may answer otherwise each time",
        "incomplete" => "cut off",
        "too_large" => "too large",
        "primary_undecodable" => "the upstream's answers are not understood",
        "unread_encoding" => "in an encoding that is not read",
        "both_failed" => "both servers failed",
        "primary_refused" => "the upstream refused the request",
        other => other,
    }
}

impl DifferencesSnapshot {
    /// The first sentence: what agrees and how far, what is only excused, and what cannot be judged, of all pairs.
    pub(crate) fn summary(&self) -> String {
        let pairs = self.compared + self.incomparable.values().sum::<u64>();
        let MismatchSnapshot { answers: differing, excused, .. } = self.mismatches;
        let agreeing = self.same + excused;
        let of = |part: u64| format!("{} %", percent(part, pairs));
        let reasons: Vec<&str> = self.unjudged.reasons.keys().map(|reason| in_words(reason)).collect();
        let reasons = reasons.join("; ");
        let noise = if excused > 0 { format!(", {} only within the upstream's own noise", of(excused)) } else { String::new() };
        let (within, below, all) = (self.within(), self.below(), grouped(pairs));
        match self.verdict {
            OutputsVerdict::NothingCompared => "No outputs were compared.".to_owned(),
            OutputsVerdict::CannotBeCompared if agreeing + differing == 0 => {
                format!("Outputs cannot be compared in any of {all} answers ({reasons}).")
            }
            OutputsVerdict::CannotBeCompared => format!(
                "Outputs cannot be compared in {} of {all} answers ({reasons}); {} differ, and {} are the same{within}{noise}{below}.",
                of(self.unjudged.pairs),
                of(differing),
                of(agreeing),
            ),
            OutputsVerdict::Differ | OutputsVerdict::Agree => {
                let unjudged = match self.unjudged.pairs {
                    0 => String::new(),
                    pairs => format!(", {} cannot be compared ({reasons})", of(pairs)),
                };
                let end = match differing {
                    0 => ".".to_owned(),
                    1 => "; the one that differs:".to_owned(),
                    n => format!("; the {} that differ:", grouped(n)),
                };
                format!("Outputs agree{within} in {} of {all} answers{noise}{unjudged}{below}{end}", of(agreeing))
            }
        }
    }

    /// `within 1e-3`, where there are numbers.
    fn within(&self) -> String {
        if self.errors.first().is_none_or(|step| step.answers_with_numbers == 0) {
            return String::new();
        }
        match (self.tolerance.absolute.given(), self.tolerance.relative) {
            (Some(absolute), 0.0) => format!(" within {absolute:e}"),
            (Some(absolute), relative) if absolute == relative => format!(" within {absolute:e}, absolute plus relative,"),
            (Some(absolute), relative) => format!(" within {absolute:e} plus {relative:e} of the value"),
            (None, relative) => format!(" within {:e} of their scale plus {relative:e} of the value", Tolerance::DEFAULT),
        }
    }

    /// What agrees only because the tolerance is greater than the numbers.
    fn below(&self) -> String {
        let numbers = || self.fields.iter().filter_map(|field| field.numbers.as_ref());
        let below: u64 = numbers().map(|numbers| numbers.below_tolerance).sum();
        let all: u64 = numbers().map(|numbers| numbers.elements).sum();
        match below {
            // a few are near zero by chance
            below if below * 100 < all || below == 0 => String::new(),
            _ => format!(", but {} % of the numbers are below the tolerance and were not told apart", percent(below, all)),
        }
    }

    fn write_field(&self, f: &mut fmt::Formatter<'_>, field: &FieldSnapshot) -> fmt::Result {
        let model = if field.model.is_empty() { String::new() } else { format!(" (model {})", field.model) };
        write!(f, "\n  {}{model}:", field.field)?;
        for (at, kind) in field.kinds.iter().filter(|kind| kind.blamed > 0).enumerate() {
            let answers = if kind.blamed == 1 { "answer" } else { "answers" };
            write!(f, "{} {} in {} {answers}", if at > 0 { "," } else { "" }, kind.kind.name(), grouped(kind.blamed))?;
        }
        if let Some(texts) = &field.texts
            && let Some(least) = texts.least_similarity
        {
            write!(f, "; least similarity {least:.3}")?;
        }
        field.worst.first().map_or(Ok(()), |worst| write_worst(f, worst))
    }

    /// How far numbers are apart, in fields whose numbers are not noise.
    fn write_errors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_noise =
            |field: &&FieldSnapshot| field.kinds.iter().any(|kind| kind.kind == DifferenceKind::Value && kind.is_noise);
        let fields = self.fields.iter().filter(|field| !is_noise(field));
        let numbers = fields.filter_map(|field| Some((&field.field, field.numbers.as_ref()?)));
        for (name, numbers) in numbers.filter(|(_, numbers)| numbers.errors.iter().any(|step| step.answers > 0)).take(FIELDS) {
            write!(f, "\nErrors of {name}, of {} answers:", grouped(numbers.answers))?;
            for (at, step) in numbers.errors.iter().filter(|step| step.answers > 0).enumerate() {
                let (answers, elements) = (grouped(step.answers), grouped(step.elements));
                write!(f, "{} {answers} above {:e} ({elements} elements)", if at > 0 { "," } else { "" }, step.above)?;
            }
            f.write_str(".")?;
        }
        Ok(())
    }

    fn write_noise(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.fields.iter().filter(|field| field.is_time);
        times.take(FIELDS).try_for_each(|field| write!(f, "\nLeft out: {} (the time of the answer).", field.field))?;
        if self.repeats.compared == 0 {
            return if self.different > 0 {
                f.write_str(
                    "\nThe primary was not asked twice: what it differs in by itself is not known; shadow.noise measures it.",
                )
            } else {
                Ok(())
            };
        }
        let noise = self.fields.iter().flat_map(|field| field.kinds.iter().map(move |kind| (field, kind)));
        for (field, kind) in noise.filter(|(_, kind)| kind.is_noise).take(FIELDS) {
            let (share, of) = (percent(kind.repeats, self.repeats.compared), grouped(self.repeats.compared));
            let (name, what) = (&field.field, kind.kind.name());
            write!(f, "\nNot blamed: {name} ({what}) differs from itself in {share} % of {of} repeats of the primary")?;
            match field.excused_size {
                Some(size) if kind.unjudged == 0 => write!(f, "; excused up to {size:.2} of its size.")?,
                _ => f.write_str(".")?,
            }
        }
        Ok(())
    }

    fn write_unjudged(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.fields.iter().flat_map(|field| field.kinds.iter().map(move |kind| (field, kind)));
        let mut is_any = false;
        for (FieldSnapshot { field, .. }, kind) in kinds.filter(|(_, kind)| kind.unjudged > 0).take(FIELDS) {
            is_any = true;
            write!(f, "\nNot judged: {field} ({}) in {} answers.", kind.kind.name(), grouped(kind.unjudged))?;
        }
        match is_any {
            true => f.write_str(
                "\nTo compare the rest of such answers, name these fields in shadow.compare.ignore; to know the upstream's own \
                 noise, let it be asked twice (shadow.noise), or ask for answers that are not drawn (temperature 0).",
            ),
            false => Ok(()),
        }
    }
}

fn write_worst(f: &mut fmt::Formatter<'_>, worst: &WorstCase) -> fmt::Result {
    let place = if worst.at.is_empty() { String::new() } else { format!(" at {}", worst.at) };
    match worst.error {
        Some(error) => write!(f, "; greatest error {error:.3e}{place}")?,
        None => write!(f, "; as{place}")?,
    }
    if let Some(row) = worst.row {
        write!(f, ", row {row}")?;
    }
    write!(f, ": {} against {} (trace {})", worst.primary, worst.candidate, worst.trace)
}

/// A share in percent with two digits, rounded so that only all is 100 and only none is 0.
fn percent(part: u64, whole: u64) -> String {
    let hundredths = (part as f64 / whole.max(1) as f64 * 1e4).round() as u64;
    let hundredths = match hundredths {
        10_000 if part < whole => 9_999,
        0 if part > 0 => 1,
        other => other,
    };
    match hundredths % 100 {
        0 => format!("{}", hundredths / 100),
        rest => format!("{}.{rest:02}", hundredths / 100),
    }
}

/// Digits in groups of three: `12,400`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}
