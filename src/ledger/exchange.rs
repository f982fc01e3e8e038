//! A finished, merged ledger: what histograms record and `/exchanges` shows.

use super::account::Account;
use super::record::Ledger;
use super::stage::{Source, Stage};

/// A span that an upstream sent, placed on the request's own clock.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedSpan {
    /// The span's name as sent.
    pub name: Box<str>,
    /// The stage that the rules map it to; `None` claims no time.
    pub stage: Option<Stage>,
    /// Start, from the request's start; negative if the upstream's clock says so.
    pub start_ns: i64,
    /// End, from the request's start.
    pub end_ns: i64,
    /// How deep below Lapwing's own span it lies, from 1.
    pub depth: u32,
}

/// One request's finished account.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What the request path saw.
    pub ledger: Ledger,
    /// What each stage owns; sums to `ledger.total_ns`.
    pub account: Account,
    /// The upstream's spans as they came.
    pub traced: Vec<TracedSpan>,
    /// How much of the upstream window reports and spans claim.
    pub claimed_ns: u64,
    /// How many reports or spans had to be clipped to the window.
    pub clipped: u32,
}

impl Exchange {
    /// The share of the upstream window that reports claim, `0..=1`; `None` where there is no window.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn coverage(&self) -> Option<f64> {
        let window = self.ledger.window?.length_ns();
        (window > 0).then(|| self.claimed_ns as f64 / window as f64)
    }

    /// Who speaks for `stage`, and for how long; `None` if it owns nothing.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> Option<(u64, Source)> {
        Some((self.account.stage_ns(stage), self.account.source(stage)?))
    }
}
