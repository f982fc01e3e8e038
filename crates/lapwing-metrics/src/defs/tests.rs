//! The table of families is valid, and docs/METRICS.md has exactly one row for each.

use std::collections::BTreeSet;

use super::*;

/// The row that a family must have in docs/METRICS.md.
fn row(name: &str, kind: MetricKind, labels: &[&str], help: &str) -> String {
    let suffix = if kind == MetricKind::Counter { "_total" } else { "" };
    let labels = labels.iter().map(|l| format!("`{l}`")).collect::<Vec<_>>().join(", ");
    format!("`{name}{suffix}` | {} | {labels} | {help}", kind.name())
}

fn rows() -> Vec<String> {
    let mut rows: Vec<String> = FAMILIES.iter().map(|f| row(f.name, f.kind, f.labels, f.help)).collect();
    for family in row_families() {
        let labels: BTreeSet<&str> = family.rows.iter().flat_map(|r| r.row().labels).map(|(name, _)| *name).collect();
        let values: Vec<String> = family.rows.iter().filter(|_| family.rows.len() > 1).map(|r| value(*r)).collect();
        let help = format!("{}{}{}", family.help, if values.is_empty() { "" } else { " " }, values.join("; "));
        rows.push(row(family.name, family.kind, &labels.into_iter().collect::<Vec<_>>(), &help));
    }
    rows
}

/// A label's value and its meaning.
fn value(counter: Counter) -> String {
    let row = counter.row();
    let meaning = row.help.split(':').nth(1).unwrap_or_default().trim().trim_end_matches('.');
    format!("`{}`: {meaning}", row.labels.first().map_or("", |(_, value)| value))
}

#[test]
fn docs_have_a_row_for_each_family_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md");
    let docs = std::fs::read_to_string(path).unwrap();
    let written: BTreeSet<&str> = docs.lines().filter(|l| l.starts_with('`') && l.contains(" | ")).collect();
    let wanted = rows();
    let missing: Vec<_> = wanted.iter().filter(|r| !written.contains(r.as_str())).cloned().collect();
    assert!(missing.is_empty(), "docs/METRICS.md lacks:\n{}", missing.join("\n"));
    let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    let stale: Vec<_> = written.difference(&wanted).collect();
    assert!(stale.is_empty(), "docs/METRICS.md has more than the tables: {stale:#?}");
}

#[test]
fn names_are_unique_and_end_in_their_unit() {
    let mut seen = BTreeSet::new();
    for family in FAMILIES {
        assert!(seen.insert(family.name), "{} is defined twice", family.name);
        assert!(family.unit.is_none_or(|unit| family.name.ends_with(&format!("_{unit}"))), "{}", family.name);
        assert!(!family.name.ends_with("_total") && family.help.ends_with('.'), "{}", family.name);
    }
    assert!(row_families().into_iter().all(|f| seen.insert(f.name) && !f.name.ends_with("_total")));
}

#[test]
fn rows_of_one_metric_agree() {
    for family in row_families() {
        for counter in family.rows.iter().filter(|_| family.rows.len() > 1) {
            let row = counter.row();
            assert_eq!((shared(row.help), row.labels.len()), (family.help.clone(), 1), "{counter:?}");
            let (label, _) = family.rows[0].row().labels[0];
            assert_eq!((row.labels[0].0, row.kind), (label, family.rows[0].row().kind));
        }
    }
}
