//! What was found of one thing, the verdict, and what to do; all of them as text and as JSON.

use std::fmt::Display;

use serde::Serialize;

use lapwing_console::printable::printable;

/// The longest line: what a peer or a file said is cut before it fills a terminal.
const COLUMNS: usize = 600;

/// How well it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckVerdict {
    /// It is well.
    #[default]
    Ok,
    /// Lapwing works, and something is missing, unknown or about to go wrong.
    Note,
    /// Requests fail, figures are lost, or Lapwing does not start.
    Wrong,
}

impl CheckVerdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Wrong => "wrong",
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DoctorCheck {
    pub(crate) name: String,
    pub(crate) verdict: CheckVerdict,
    pub(crate) found: String,
    /// What to do; `None` where it is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct DoctorReport {
    pub(crate) checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    /// `name` is well.
    pub(crate) fn ok(&mut self, name: impl Into<String>, found: impl Display) {
        self.add(name, CheckVerdict::Ok, found, None);
    }

    /// Something of `name` is missing, unknown or about to go wrong.
    pub(crate) fn note(&mut self, name: impl Into<String>, found: impl Display, advice: impl Into<String>) {
        self.add(name, CheckVerdict::Note, found, Some(advice.into()));
    }

    /// `name` is wrong.
    pub(crate) fn wrong(&mut self, name: impl Into<String>, found: impl Display, advice: impl Into<String>) {
        self.add(name, CheckVerdict::Wrong, found, Some(advice.into()));
    }

    fn add(&mut self, name: impl Into<String>, verdict: CheckVerdict, found: impl Display, advice: Option<String>) {
        self.checks.push(DoctorCheck { name: name.into(), verdict, found: found.to_string(), advice });
    }

    fn verdict(&self) -> CheckVerdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or_default()
    }

    /// Whether anything is wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        self.verdict() == CheckVerdict::Wrong
    }

    /// A line for each.
    pub(crate) fn text(&self) -> String {
        let width = self.checks.iter().map(|check| check.name.chars().count()).max().unwrap_or_default();
        let line = |check: &DoctorCheck| {
            let advice = check.advice.as_ref().map(|advice| format!(" → {advice}")).unwrap_or_default();
            let said = printable(&format!("{:<width$}  {}{advice}", check.name, check.found), COLUMNS);
            format!("{:<5}  {said}\n", check.verdict.name())
        };
        self.checks.iter().map(line).collect()
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> String {
        let report =
            serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "verdict": self.verdict(), "checks": self.checks });
        format!("{report:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts_and_advice_is_where_something_is_to_do() {
        let mut report = DoctorReport::default();
        assert!(!report.is_wrong());
        report.ok("listen", "127.0.0.1:8080 is free");
        report.note("reports", "none", "ask for them");
        assert!(!report.is_wrong());
        report.wrong("upstream", "http://m:1\x1b[2J: refused", "start it");
        assert!(report.is_wrong());
        assert_eq!(
            report.text(),
            "ok     listen    127.0.0.1:8080 is free\n\
             note   reports   none → ask for them\n\
             wrong  upstream  http://m:1\\u{1b}[2J: refused → start it\n"
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["verdict"], "wrong");
        assert_eq!(json["checks"][0], serde_json::json!({"name": "listen", "verdict": "ok", "found": "127.0.0.1:8080 is free"}));
        assert_eq!(json["checks"][2]["advice"], "start it");
    }
}
