//! The share that the candidate of a live split gets: one step after the other, or none any more. It decides by what it is told; it
//! measures nothing.

use lapwing_ledger::Stamp;
use lapwing_settings::Share;

/// What is known of the candidate at a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Which limits are exceeded, with confidence.
    pub(crate) against: Option<String>,
    /// Why nothing is known yet that speaks for more.
    pub(crate) doubts: Option<String>,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RampEvent {
    /// The candidate gets more.
    Raised,
    /// It gets nothing any more, for this reason.
    Stopped(String),
}

/// A ramp while it runs. A constant share is one of one step.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    shares: Vec<Share>,
    step_ns: u64,
    at: usize,
    /// When this step began.
    since: Stamp,
    stopped: Option<String>,
}

impl Ramp {
    /// Begins with the first of `shares`, each of which lasts at least `step_ns`.
    pub(crate) fn new(shares: &[Share], step_ns: u64, now: Stamp) -> Self {
        Self { shares: shares.to_vec(), step_ns, at: 0, since: now, stopped: None }
    }

    /// Looks at what is known by now.
    pub(crate) fn look(&mut self, findings: &Findings, now: Stamp) -> Option<RampEvent> {
        if self.stopped.is_some() || self.share() == 0.0 {
            return None;
        }
        if let Some(against) = &findings.against {
            self.stopped = Some(against.clone());
            return Some(RampEvent::Stopped(against.clone()));
        }
        let is_due = self.at + 1 < self.shares.len() && now.since(self.since) >= self.step_ns;
        if !is_due || findings.doubts.is_some() {
            return None;
        }
        self.at += 1;
        self.since = now;
        Some(RampEvent::Raised)
    }

    /// The share in force, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        let share = self.shares.get(self.at).filter(|_| self.stopped.is_none());
        share.map_or(0.0, |share| share.get())
    }

    /// The step, from 0, and how many there are.
    pub(crate) fn step(&self) -> (usize, usize) {
        (self.at, self.shares.len())
    }

    /// The next share, and how long until it is due, in nanoseconds.
    pub(crate) fn next(&self, now: Stamp) -> Option<(Share, u64)> {
        let next = self.shares.get(self.at + 1).filter(|_| self.stopped.is_none())?;
        Some((*next, self.step_ns.saturating_sub(now.since(self.since))))
    }

    /// Why it was stopped.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ramp(shares: &[&str]) -> Ramp {
        let shares: Vec<Share> = shares.iter().map(|share| share.parse().unwrap()).collect();
        Ramp::new(&shares, 60 * SECOND, Stamp::default())
    }

    fn at(seconds: u64) -> Stamp {
        Stamp::default().plus(seconds * SECOND)
    }

    fn findings(against: Option<&str>, doubts: Option<&str>) -> Findings {
        Findings { against: against.map(Into::into), doubts: doubts.map(Into::into) }
    }

    #[test]
    fn it_rises_step_by_step_while_nothing_speaks_against_it() {
        let (mut ramp, good) = (ramp(&["1%", "5%", "25%"]), Findings::default());
        assert_eq!((ramp.look(&good, at(59)), ramp.share()), (None, 0.01));
        assert_eq!(ramp.next(at(59)).unwrap().1, SECOND);
        assert_eq!((ramp.look(&good, at(60)), ramp.share()), (Some(RampEvent::Raised), 0.05));
        assert_eq!(ramp.look(&good, at(119)), None, "each step lasts its time");
        assert_eq!((ramp.look(&good, at(300)), ramp.share()), (Some(RampEvent::Raised), 0.25));
        assert_eq!((ramp.look(&good, at(9_999)), ramp.share(), ramp.next(at(9_999))), (None, 0.25, None));
    }

    #[test]
    fn it_waits_while_there_are_doubts() {
        let mut ramp = ramp(&["1%", "5%"]);
        assert_eq!((ramp.look(&findings(None, Some("too early")), at(500)), ramp.share()), (None, 0.01));
        assert_eq!(ramp.look(&Findings::default(), at(501)), Some(RampEvent::Raised));
    }

    #[test]
    fn it_stops_for_good_and_says_why() {
        let mut ramp = ramp(&["1%", "5%"]);
        let bad = findings(Some("slow"), Some("too early"));
        assert_eq!((ramp.look(&bad, at(3)), ramp.share()), (Some(RampEvent::Stopped("slow".into())), 0.0));
        assert_eq!((ramp.look(&bad, at(4)), ramp.look(&Findings::default(), at(900))), (None, None));
        assert_eq!((ramp.share(), ramp.stopped(), ramp.next(at(900))), (0.0, Some("slow"), None));
    }

    #[test]
    fn a_share_of_nothing_is_not_stopped() {
        let mut ramp = ramp(&["0%"]);
        assert_eq!((ramp.look(&findings(Some("slow"), None), at(3)), ramp.stopped()), (None, None));
    }
}
