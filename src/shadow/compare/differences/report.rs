//! The account as text for people: "Outputs agree within 1e-3 in 99.98 % of 12,400 answers; the 3 that differ: …".

use std::fmt;

use super::super::comparison::DifferenceKind;
use super::snapshot::{DifferencesSnapshot, FieldSnapshot};
use super::tally::WorstCase;

/// How many fields are named.
const FIELDS: usize = 10;

impl fmt::Display for DifferencesSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.compared == 0 {
            f.write_str("No outputs were compared.")?;
        } else {
            let agreeing = self.compared - self.mismatches.answers;
            let share = percent(agreeing, self.compared);
            write!(f, "Outputs agree{} in {share} % of {} answers", self.within(), grouped(self.compared))?;
            match self.mismatches.answers {
                0 => f.write_str(".")?,
                1 => f.write_str("; the one that differs:")?,
                n => write!(f, "; the {} that differ:", grouped(n))?,
            }
        }
        let blamed = |field: &&FieldSnapshot| field.kinds.iter().any(|kind| kind.answers > 0 && !kind.is_noise);
        for field in self.fields.iter().filter(blamed).take(FIELDS) {
            self.write_field(f, field)?;
        }
        match self.fields.iter().filter(blamed).count().saturating_sub(FIELDS) {
            0 => {}
            more => write!(f, "\n  and {more} more fields")?,
        }
        self.write_errors(f)?;
        self.write_noise(f)?;
        let incomparable = self.incomparable.iter().filter(|(_, pairs)| **pairs > 0);
        incomparable.map(|(reason, pairs)| write!(f, "\nNot compared: {} ({reason}).", grouped(*pairs))).collect()
    }
}

impl DifferencesSnapshot {
    /// `within 1e-3`, where there are numbers.
    fn within(&self) -> String {
        if self.errors.first().is_none_or(|step| step.answers_with_numbers == 0) {
            return String::new();
        }
        match (self.tolerance.absolute, self.tolerance.relative) {
            (absolute, 0.0) => format!(" within {absolute:e}"),
            (absolute, relative) if absolute == relative => format!(" within {absolute:e}, absolute plus relative,"),
            (absolute, relative) => format!(" within {absolute:e} plus {relative:e} of the value"),
        }
    }

    fn write_field(&self, f: &mut fmt::Formatter<'_>, field: &FieldSnapshot) -> fmt::Result {
        write!(f, "\n  {}:", field.field)?;
        for (at, kind) in field.kinds.iter().filter(|kind| kind.answers > 0 && !kind.is_noise).enumerate() {
            let answers = if kind.answers == 1 { "answer" } else { "answers" };
            write!(f, "{} {} in {} {answers}", if at > 0 { "," } else { "" }, kind.kind.name(), grouped(kind.answers))?;
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
        if self.repeats.compared == 0 {
            return if self.different > 0 {
                f.write_str("\nThe primary was not asked twice: differences of its own are counted as the candidate's.")
            } else {
                Ok(())
            };
        }
        let noise = self.fields.iter().flat_map(|field| field.kinds.iter().map(move |kind| (field, kind)));
        for (field, kind) in noise.filter(|(_, kind)| kind.is_noise).take(FIELDS) {
            let (share, of) = (percent(kind.repeats, self.repeats.compared), grouped(self.repeats.compared));
            let (name, what) = (&field.field, kind.kind.name());
            write!(f, "\nNot blamed: {name} ({what}) differs from itself in {share} % of {of} repeats of the primary.")?;
        }
        Ok(())
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
