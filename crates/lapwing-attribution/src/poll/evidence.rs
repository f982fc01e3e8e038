//! What clients' traffic shows of the server behind the upstream's address. Nothing is polled before it was recognised here,
//! because an address that Lapwing guesses may belong to the user's own code.

use parking_lot::Mutex;

use lapwing_ledger::{Ledger, Server, ServerEvidence, ServerField};

/// The evidence so far.
#[derive(Debug, Default)]
pub struct UpstreamEvidence {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    recognised: Option<(Server, ServerEvidence)>,
    /// The upstream carries the user's own handlers, whatever their responses contain.
    is_users_code: bool,
    /// Servers that refused their statistics.
    refused: Vec<Server>,
}

impl UpstreamEvidence {
    /// Records what a merged exchange shows. Costs one lock if it shows a server, else nothing.
    pub fn note(&self, ledger: &Ledger) {
        let Some((server, evidence)) = ledger.server.zip(ledger.server_evidence) else { return };
        let mut seen = self.seen.lock();
        if server == Server::RayServe {
            seen.is_users_code = true;
        } else if answered_itself(server, ledger.server_field) {
            seen.recognised = Some((server, evidence));
        }
    }

    /// The server that the upstream is, and what showed it; `None` while it is not known, if the upstream carries the user's
    /// handlers, and if the server refused its statistics.
    #[must_use]
    pub fn recognised(&self) -> Option<(Server, ServerEvidence)> {
        let seen = self.seen.lock();
        seen.recognised.filter(|(server, _)| !seen.is_users_code && !seen.refused.contains(server))
    }

    /// Forgets the server: the upstream may be another one now.
    pub(crate) fn forget(&self) {
        self.seen.lock().recognised = None;
    }

    /// Records that this server is not asked again.
    pub(crate) fn refuse(&self, server: Server) {
        let mut seen = self.seen.lock();
        if !seen.refused.contains(&server) {
            seen.refused.push(server);
        }
    }
}

/// Whether the head's `Server` field is that of this server. If not, something between relayed its answer.
fn answered_itself(server: Server, field: ServerField) -> bool {
    match server {
        Server::LlamaCpp | Server::BentoMl => field == ServerField::ModelServer,
        Server::Triton | Server::Tei | Server::Tgi => field == ServerField::Absent,
        _ => matches!(field, ServerField::Uvicorn | ServerField::Absent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::Stamp;

    fn note(evidence: &UpstreamEvidence, server: Server, by: ServerEvidence, field: ServerField) {
        let mut ledger = Ledger::open(Stamp::default(), 0);
        (ledger.server, ledger.server_evidence, ledger.server_field) = (Some(server), Some(by), field);
        evidence.note(&ledger);
    }

    #[test]
    fn a_server_is_recognised_by_what_it_answers_itself() {
        use ServerEvidence::{Body, Head, Span};
        use ServerField::{Absent, ModelServer, Other, Uvicorn};
        for (server, by, field, is_recognised) in [
            (Server::Vllm, Body, Uvicorn, true),
            (Server::Vllm, Span, Absent, true),
            (Server::Vllm, Body, Other, false),
            (Server::LlamaCpp, Head, ModelServer, true),
            (Server::LlamaCpp, Body, Uvicorn, false),
            (Server::LlamaCpp, Body, Absent, false),
            (Server::Triton, Span, Absent, true),
            (Server::Triton, Span, Uvicorn, false),
            (Server::Tei, Head, Absent, true),
            (Server::Tei, Head, Uvicorn, false),
            (Server::BentoMl, Head, ModelServer, true),
        ] {
            let evidence = UpstreamEvidence::default();
            evidence.note(&Ledger::open(Stamp::default(), 0));
            assert_eq!(evidence.recognised(), None);
            note(&evidence, server, by, field);
            assert_eq!(evidence.recognised(), is_recognised.then_some((server, by)), "{server:?} {by:?} {field:?}");
        }
    }

    #[test]
    fn ray_serve_carries_the_users_code_whatever_its_bodies_say() {
        let evidence = UpstreamEvidence::default();
        note(&evidence, Server::Vllm, ServerEvidence::Body, ServerField::Uvicorn);
        note(&evidence, Server::RayServe, ServerEvidence::Span, ServerField::Uvicorn);
        note(&evidence, Server::Vllm, ServerEvidence::Body, ServerField::Uvicorn);
        assert_eq!(evidence.recognised(), None);
    }

    #[test]
    fn a_server_that_refused_is_not_recognised_again_but_another_is() {
        let evidence = UpstreamEvidence::default();
        note(&evidence, Server::Vllm, ServerEvidence::Body, ServerField::Uvicorn);
        evidence.refuse(Server::Vllm);
        evidence.refuse(Server::Vllm);
        assert_eq!(evidence.recognised(), None);
        note(&evidence, Server::Tei, ServerEvidence::Head, ServerField::Absent);
        assert!(evidence.recognised().is_some());
        evidence.forget();
        assert_eq!(evidence.recognised(), None);
    }
}
