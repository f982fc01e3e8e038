//! All rules with their stores: which of them takes a request.

use std::sync::Arc;

use http::Request;

use crate::config::HydrateRule;
use crate::hydration::Hydration;
use crate::refused::HydrateRefused;
use crate::stores::{HydrateKeepers, HydrateStores};
use crate::{HydratedBody, HydratingRequest};
use lapwing_protocol::request_match::{KnownRequest, model_in_path};
use lapwing_settings::Fault;

/// All rules, in their order, with a client of each rule's store.
#[derive(Debug)]
pub struct Hydrator {
    rules: Vec<Arc<Hydration>>,
    stores: HydrateStores,
}

impl Hydrator {
    /// From settings that have been checked; `None` without any. What comes with it keeps the connections, on the runtime that asks.
    pub fn new(rules: &[HydrateRule]) -> (Option<Arc<Self>>, HydrateKeepers) {
        let ready: Option<Vec<_>> = rules.iter().map(|rule| Hydration::new(rule).map(Arc::new)).collect();
        let Some(ready) = ready.filter(|ready| !ready.is_empty()) else { return (None, HydrateKeepers::default()) };
        let (stores, keepers) = HydrateStores::new(rules);
        (Some(Arc::new(Self { rules: ready, stores })), keepers)
    }

    /// The passwords and certificates of stores that cannot be read.
    #[must_use]
    pub fn unread_files(rules: &[HydrateRule]) -> Vec<Fault> {
        HydrateStores::new(rules).0.into_faults()
    }

    /// Whether a rule may take this request, by its head.
    pub fn may_take<B>(&self, request: &Request<B>) -> bool {
        let model = model_in_path(request);
        let known = KnownRequest { model, ..KnownRequest::default() };
        self.rules.iter().any(|rule| rule.matches.takes(request, known) || rule.matches.awaits(request, model).contains(&true))
    }

    /// The first rule that takes this request, and its place among them.
    pub fn find<B>(&self, request: &Request<B>, known: KnownRequest<'_>) -> Option<(usize, Arc<Hydration>)> {
        let (at, rule) = self.rules.iter().enumerate().find(|(_, rule)| rule.matches.takes(request, known))?;
        Some((at, rule.clone()))
    }

    /// Looks up what a request of the rule at this place needs, and writes it into the body, at `now_s` seconds since 1970. It returns by the
    /// rule's deadline.
    ///
    /// # Errors
    ///
    /// If the request is refused.
    pub async fn hydrate(
        &self,
        (at, rule): (usize, &Hydration),
        request: &HydratingRequest,
        now_s: i64,
    ) -> Result<HydratedBody, HydrateRefused> {
        match self.stores.ask(at, rule, rule.question(request)).await {
            Ok(answer) => rule.fill(request, &answer, now_s),
            Err(refused) => rule.without(request, refused),
        }
    }
}
