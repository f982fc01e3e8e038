//! A request that found no answer: it asks others and its upstream, and what is answered is noted; or it waits for who asks the same.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;

use crate::answer::{AnswerAgain, StoredAnswer};
use crate::cache::{Cache, CacheQuestion, wall};
use crate::coalesce::{FollowerId, LeaderTicket, WhyAlone};
use crate::counts::CacheEvent;
use crate::plane::Joined;
use crate::refresh::RefreshTicket;
use crate::refusal::CacheRefusal;
use crate::sealed::SharedEpoch;
use crate::storable::{AnswerParts, head_refusal};
use crate::store::CacheLookup;
use crate::trust::TrustState;
use lapwing_ledger::Stamp;

/// What becomes of a request.
#[derive(Debug)]
pub enum Looked {
    /// It is given this answer. It is soon out of date, if the upstream may be asked beside it.
    Answered(Box<AnswerAgain>, Option<Asking>),
    /// The upstream is asked, and its answer noted.
    Asked(Asking),
    /// It waits for the answer to the same request.
    Follows(Following),
    /// Its client wants an answer from here only, and there is none.
    OnlyIfCached,
}

impl Cache {
    /// Looks for an answer.
    #[must_use]
    pub fn look(self: &Arc<Self>, question: CacheQuestion, now: Stamp) -> Looked {
        let counters = &self.plane.counters;
        let asking = |question, ticket, looks_further| Looked::Asked(Asking::new(self, question).with(ticket, looks_further));
        let ask = |question, ticket| asking(question, ticket, false);
        if !question.is_on {
            return ask(question, None);
        }
        match question.trust {
            TrustState::Proven => {}
            state => {
                counters.bump(if state == TrustState::Refused { CacheEvent::Refused } else { CacheEvent::Unproven });
                return ask(question, None);
            }
        }
        if let CacheLookup::Hit(answer) = self.store().get(&question.keyed.key, &question.terms, now) {
            let (draw, share) = &self.verify;
            if !question.terms.only_if_cached && draw.draw(*share) {
                counters.bump(CacheEvent::Verified);
                return ask(question, None);
            }
            counters.bump(CacheEvent::L1);
            counters.save(answer.service_ns());
            let again = Box::new(question.again(&answer, now));
            let refresh = self.refresh.and_then(|share| RefreshTicket::of(&self.plane, &answer, share, now));
            let asks = |ticket| Asking::new(self, question).refreshing(ticket);
            return Looked::Answered(again, refresh.map(asks));
        }
        if question.terms.only_if_cached {
            counters.bump(CacheEvent::OnlyIfCached);
            return Looked::OnlyIfCached;
        }
        let is_shared = self.plane.shared().is_some();
        if !self.coalesces || !question.terms.may_answer {
            counters.bump(CacheEvent::Miss);
            return asking(question, None, is_shared);
        }
        match self.plane.join(question.keyed.key, now) {
            Joined::Leads(ticket) => {
                counters.bump(CacheEvent::Miss);
                asking(question, Some(ticket), is_shared)
            }
            Joined::Alone(why) => {
                let full = if why == WhyAlone::Leaders { CacheEvent::LeadersFull } else { CacheEvent::FollowersFull };
                counters.bump(full);
                ask(question, None)
            }
            Joined::Follows { id, answer } => {
                Looked::Follows(Following { cache: self.clone(), id, answer, question: Some(question) })
            }
        }
    }
}

/// A request that the upstream is asked, whose answer is to be noted. Dropped: it had none that others may be given.
#[derive(Debug)]
pub struct Asking {
    cache: Arc<Cache>,
    question: Option<CacheQuestion>,
    ticket: Option<LeaderTicket>,
    /// Whether others may have an answer to it.
    looks_further: bool,
    /// In which the answer may be shared.
    epoch: Option<SharedEpoch>,
    /// It was asked because an answer that is still good is about to be out of date.
    refresh: Option<RefreshTicket>,
}

impl Asking {
    fn new(cache: &Arc<Cache>, question: CacheQuestion) -> Self {
        let (ticket, looks_further, epoch, refresh) = (None, false, None, None);
        Self { cache: cache.clone(), question: Some(question), ticket, looks_further, epoch, refresh }
    }

    /// Others may follow it, by its ticket; other processes may have an answer.
    fn with(mut self, ticket: Option<LeaderTicket>, looks_further: bool) -> Self {
        (self.ticket, self.looks_further) = (ticket, looks_further);
        self
    }

    fn refreshing(mut self, ticket: RefreshTicket) -> Self {
        self.refresh = Some(ticket);
        self
    }

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

    /// Whether other processes may have an answer.
    #[must_use]
    pub const fn looks_further(&self) -> bool {
        self.looks_further
    }

    /// Looks for an answer of other processes. It takes no longer than `cache.redis.deadline`.
    pub async fn look_further(&mut self) -> Option<AnswerAgain> {
        let (question, plane) = (self.question.as_ref()?, &self.cache.plane);
        let now = (Stamp::now(), wall());
        let takes_ns = question.series.and_then(|series| plane.trust.service_ns(series));
        let found = plane.shared()?.get(&question.keyed.shared, question.model.as_deref(), &question.terms, takes_ns, now).await;
        self.epoch = found.epoch;
        let answer = found.answer.ok()?;
        if plane.generations.current(question.model.as_deref()) != question.generation {
            return None;
        }
        let answer = self.cache.store().put(question.keyed.key, answer).ok()?;
        plane.counters.bump(CacheEvent::L2);
        plane.counters.save(answer.service_ns());
        let again = question.again(&answer, Stamp::now());
        if let Some(ticket) = self.ticket.take() {
            plane.finish(ticket, Some(&answer));
        }
        Some(again)
    }

    /// Too much was waiting to be noted: nothing is.
    pub fn give_up(self) {
        self.cache.count_unread();
    }

    /// The answer did not come to its end.
    pub fn broke_off(self) {
        self.cache.plane.counters.refuse(CacheRefusal::Incomplete);
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
        if let (Some(answer), Some(shared), Some(epoch)) = (&answer, self.cache.plane.shared(), self.epoch.take()) {
            // what there is no room for is counted there
            let _ = shared.put(question.keyed.shared, epoch, answer.clone(), (now, wall()));
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

/// A request that waits for the answer to the same one.
#[derive(Debug)]
pub struct Following {
    cache: Arc<Cache>,
    id: FollowerId,
    answer: oneshot::Receiver<Option<Arc<StoredAnswer>>>,
    question: Option<CacheQuestion>,
}

impl Following {
    /// How long it may wait, in nanoseconds.
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        self.cache.plane.wait_ns()
    }

    /// Waits for the answer; `None` if the one that it follows has none for it. To be given up after [`Self::wait_ns`].
    pub async fn answer(&mut self) -> Option<AnswerAgain> {
        let answer = (&mut self.answer).await.ok().flatten()?;
        self.cache.plane.counters.bump(CacheEvent::Coalesced);
        self.cache.plane.counters.save(answer.service_ns());
        Some(self.question.as_ref()?.again(&answer, Stamp::now()))
    }

    /// It goes on its own.
    #[must_use]
    pub fn alone(mut self) -> Option<Asking> {
        self.cache.plane.counters.bump(CacheEvent::FollowerAlone);
        Some(Asking::new(&self.cache, self.question.take()?))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.cache.plane.leave(self.id);
    }
}
