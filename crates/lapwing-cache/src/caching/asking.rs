//! Requests that the upstream is asked, and what is noted of its answers.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::{Cache, CacheQuestion};
use crate::answer::StoredAnswer;
use crate::coalesce::LeaderTicket;
use crate::counts::CacheEvent;
use crate::ghost::GhostQuestion;
use crate::plane::SeenAnswer;
use crate::refresh::RefreshTicket;
use crate::refusal::CacheRefusal;
use crate::storable::{AnswerParts, head_refusal};
use crate::trust::TrustState;
use crate::verify::HitCheck;
use lapwing_ledger::Stamp;

/// A request that the upstream is asked, whose answer is to be noted. Dropped: it had none that others may be given.
#[derive(Debug)]
pub struct Asking {
    pub(crate) cache: Arc<Cache>,
    pub(crate) question: Option<CacheQuestion>,
    pub(crate) ticket: Option<LeaderTicket>,
    /// It was asked because an answer that is still good is about to be out of date.
    pub(crate) refresh: Option<RefreshTicket>,
}

impl Asking {
    /// Whether others may wait for its answer, so that it must come whether its client leaves or not.
    #[must_use]
    pub const fn leads(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether an answer with this head may be stored. If not, that is counted.
    #[must_use]
    pub fn wants(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let Some(question) = &self.question else { return false };
        let refusal = head_refusal(status, headers, question.settings.storing);
        refusal.is_none_or(|refusal| {
            self.cache.plane.counters.refuse(refusal);
            false
        })
    }

    /// Too much was waiting to be noted: nothing is.
    pub fn give_up(self) {
        self.cache.plane.counters.bump(CacheEvent::Unread);
    }

    /// The upstream answered, with the last byte at `now`.
    pub fn answered(mut self, parts: AnswerParts<'_>, now: Stamp) {
        let Some(question) = self.question.take() else { return };
        let service_ns = now.since(question.asked);
        let noted = self.cache.note(&question, parts, service_ns, now);
        let answer = noted.map_err(|refusal| self.cache.plane.counters.refuse(refusal)).ok().flatten();
        if self.refresh.is_some() && answer.is_some() {
            self.cache.plane.counters.bump(CacheEvent::Refreshed);
        }
        if let Some(ticket) = self.ticket.take() {
            self.cache.plane.finish(ticket, answer.as_ref());
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.cache.plane.finish(ticket, None);
        }
    }
}

impl Cache {
    /// Notes an answer: compares it with an earlier one, lets the ghost count it, or stores it.
    fn note(
        &self,
        question: &CacheQuestion,
        parts: AnswerParts<'_>,
        service_ns: u64,
        now: Stamp,
    ) -> Result<Option<Arc<StoredAnswer>>, CacheRefusal> {
        let CacheQuestion { keyed, settings, .. } = question;
        let terms = parts.terms(settings.storing, &settings.keys)?;
        let answer = StoredAnswer::new(keyed, parts, terms, service_ns, question.asked)?;
        let named = question.series.filter(|series| series.is_named(question.model.is_some()));
        if let Some((version, series)) = answer.model_version().zip(named) {
            self.plane.on_version(series.model, question.model.as_deref(), &version);
        }
        if self.plane.generations.current(question.model.as_deref()) != question.generation {
            // it was asked of a server that is another by now, or of none that is trusted
            return Ok(None);
        }
        self.compare(question, &answer, terms.fresh_ns, now);
        if !question.is_on {
            let ghost = GhostQuestion { key: keyed.key, bytes: answer.cost(), class: question.class(), service_ns };
            self.plane.observe(ghost, now);
            return Ok(None);
        }
        if self.trust_in(question) != TrustState::Proven {
            return Ok(None);
        }
        self.store().put(keyed.key, answer).map(Some)
    }

    /// Compares an answer with the one before to the same question, if that would still be good.
    fn compare(&self, question: &CacheQuestion, answer: &StoredAnswer, fresh_ns: u64, now: Stamp) {
        let seen = SeenAnswer { digest: answer.digest(), at: question.asked };
        let before = self.plane.seen.get(&question.keyed.key);
        self.plane.seen.insert(question.keyed.key, seen);
        let Some(before) = before.filter(|before| now.since(before.at) < fresh_ns) else { return };
        let is_same = before.digest == seen.digest;
        self.plane.counters.bump(if is_same { CacheEvent::Same } else { CacheEvent::Different });
        let check = if is_same { HitCheck::Fresh } else { HitCheck::Stale };
        if question.series.is_some_and(|series| self.plane.trust.note(series, check, self.trust)) {
            // what was stored of it is not to be found again
            match &question.model {
                Some(model) => self.plane.generations.renew_model(model),
                None => self.plane.generations.renew(),
            }
            let model = question.model.as_deref().unwrap_or("unnamed");
            tracing::warn!(model, "the upstream gave another answer to the same question: it is asked in all cases from now on");
        }
    }
}
