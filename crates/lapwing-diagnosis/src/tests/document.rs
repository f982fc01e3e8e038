//! docs/DIAGNOSIS.md against the table of rules.

use crate::notices::NOTICES;
use crate::quantity::Quantity;
use crate::rules::{Condition, Operand, RULES};

const DOCUMENT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/DIAGNOSIS.md"));

/// A row of the document's table of rules, as the table in the code would have it.
fn row(rule: &crate::rules::Rule) -> String {
    let conditions: Vec<String> = rule.conditions.iter().map(condition).collect();
    let conditions = if conditions.is_empty() { "–".to_owned() } else { conditions.join(", ") };
    format!("| `{}` | {} | {} |", rule.name, rule.cause.name(), conditions)
}

fn condition(condition: &Condition) -> String {
    let name = match condition.operand() {
        Operand::Measured(quantity) => format!("`{}`", quantity.name()),
        Operand::ShareOf(name, _) => name.to_owned(),
    };
    match condition {
        Condition::AtLeast(_, threshold) => format!("{name} ≥ {threshold}"),
        Condition::AtMost(_, threshold) => format!("{name} ≤ {threshold}"),
    }
}

/// Whether the last column of a row says where its claim comes from: a work with its year, a standard, a page, or our own figures.
fn has_source(line: &str) -> bool {
    let source = line.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default().trim();
    let has_year = source.split(|c: char| !c.is_ascii_digit()).any(|number| number.len() == 4);
    has_year || ["RFC ", "https://", ".md"].iter().any(|mark| source.contains(mark))
}

#[test]
fn the_document_has_every_rule_with_its_thresholds_and_source() {
    let lines: Vec<&str> = DOCUMENT.lines().collect();
    let missing: Vec<String> = RULES.iter().map(row).filter(|row| !lines.iter().any(|line| line.starts_with(&**row))).collect();
    assert!(missing.is_empty(), "docs/DIAGNOSIS.md lacks:\n{}", missing.join("\n"));
    for rule in RULES {
        let line = lines.iter().find(|line| line.starts_with(&row(rule))).unwrap();
        assert!(has_source(line), "{}: the document does not say where the claim comes from", rule.name);
        assert!(!rule.fixes.is_empty() && !rule.sentence.is_empty(), "{}", rule.name);
    }
}

#[test]
fn the_document_has_every_notice_with_its_thresholds_and_source() {
    for notice in NOTICES {
        let conditions: Vec<String> = notice.conditions.iter().map(condition).collect();
        let row = format!("| `{}` | {} |", notice.name, conditions.join(", "));
        let line = DOCUMENT.lines().find(|line| line.starts_with(&row));
        let line = line.unwrap_or_else(|| panic!("docs/DIAGNOSIS.md lacks: {row}"));
        assert!(has_source(line), "{}: the document does not say where the claim comes from", notice.name);
        assert!(!notice.fixes.is_empty() && !notice.sentence.is_empty(), "{}", notice.name);
    }
}

#[test]
fn the_document_explains_every_quantity_and_no_other() {
    for quantity in Quantity::ALL {
        let row = format!("- `{}`: {}\n", quantity.name(), quantity.what());
        assert!(DOCUMENT.contains(&row), "docs/DIAGNOSIS.md lacks: {row}");
    }
    let sentences =
        RULES.iter().map(|rule| (rule.name, rule.sentence)).chain(NOTICES.iter().map(|notice| (notice.name, notice.sentence)));
    for (rule, sentence) in sentences {
        let mut rest = sentence;
        while let Some((_, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap();
            let is_known = ["share", "time"].contains(&name) || Quantity::ALL.iter().any(|quantity| quantity.name() == name);
            assert!(is_known, "{rule}: {{{name}}} is no quantity");
            rest = after;
        }
    }
}
