//! Names that an exchange brings, and what proves that they are real: clients may send any name, so only the upstream's answer makes
//! one a series.

use super::record::Ledger;

/// What the upstream's answer says of the request's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameProof {
    /// Nothing: no answer, or one that may mean that there is no such route or model.
    #[default]
    Unproven,
    /// They are real if the answer had content: a gRPC call whose status has not come.
    WithContent,
    /// They are real.
    Proven,
}

impl NameProof {
    /// The proof in a status of HTTP: 2xx and 5xx, and 101, which an upstream sends only for a route that it upgrades.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            101 | 200..300 | 500..600 => Self::Proven,
            _ => Self::Unproven,
        }
    }

    /// The proof in a gRPC status: none in codes that blame the caller, such as `INVALID_ARGUMENT` (3) and `NOT_FOUND` (5), and in
    /// `UNIMPLEMENTED` (12), with which servers answer unknown methods.
    #[must_use]
    pub const fn of_grpc(code: u32) -> Self {
        match code {
            1 | 3 | 5 | 6 | 7 | 9 | 11 | 12 | 16 => Self::Unproven,
            _ => Self::Proven,
        }
    }
}

/// Names that were in no table when the request came. Each is a label's text, so it has a bounded length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewNames {
    /// The route, if it is new.
    pub route: Option<Box<str>>,
    /// The model, if it is new.
    pub model: Option<Box<str>>,
}

impl Ledger {
    /// Whether the answer proves that route and model are real, so that they may become series. A copy's answer proves it only by
    /// success: what a shadow target fails at may be unknown to the upstream too.
    #[must_use]
    pub const fn proves_names(&self) -> bool {
        let has_content = match self.name_proof {
            NameProof::Unproven => false,
            NameProof::WithContent => self.response_bytes > 0,
            NameProof::Proven => true,
        };
        has_content && self.window.is_some() && !(self.is_copy && self.status >= 500)
    }

    /// Keeps the model's name until the answer has proved it.
    pub fn name_new_model(&mut self, name: &str) {
        self.new_names.get_or_insert_default().model = Some(name.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Stamp, UpstreamWindow};

    fn closed(status: u16, proof: NameProof) -> Ledger {
        Ledger { status, name_proof: proof, window: Some(UpstreamWindow::default()), ..Ledger::open(Stamp::default(), 0) }
    }

    #[test]
    fn success_and_failure_of_the_upstream_prove_names() {
        let proves = |status| closed(status, NameProof::of_status(status)).proves_names();
        assert!([101, 200, 206, 299, 500, 503, 599].into_iter().all(proves));
        assert!(![0, 100, 301, 304, 400, 401, 404, 405, 429, 499, 600].into_iter().any(proves));
        assert!(!Ledger { window: None, ..closed(503, NameProof::Proven) }.proves_names(), "Lapwing's own answer");
        let copy = |status| Ledger { is_copy: true, ..closed(status, NameProof::of_status(status)) }.proves_names();
        assert_eq!([copy(200), copy(502)], [true, false]);
    }

    #[test]
    fn grpc_calls_prove_names_by_their_status_or_by_content() {
        let proven = |code| NameProof::of_grpc(code) == NameProof::Proven;
        assert!([0, 2, 4, 8, 10, 13, 14, 15].into_iter().all(proven));
        assert!(![3, 5, 12, 16].into_iter().any(proven));
        let cut = closed(200, NameProof::WithContent);
        assert!(!cut.proves_names());
        assert!(Ledger { response_bytes: 5, ..cut }.proves_names());
    }
}
