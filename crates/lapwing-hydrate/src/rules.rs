//! All rules: which of them takes a request.

use std::sync::Arc;

use http::Request;

use crate::config::HydrateRule;
use crate::hydration::Hydration;
use lapwing_protocol::request_match::{KnownRequest, model_in_path};

/// All rules, in their order.
#[derive(Debug)]
pub struct HydrateRules(Vec<Arc<Hydration>>);

impl HydrateRules {
    /// From settings that have been checked; `None` without any.
    #[must_use]
    pub fn new(rules: &[HydrateRule]) -> Option<Self> {
        let rules: Vec<_> = rules.iter().map(|rule| Hydration::new(rule).map(Arc::new)).collect::<Option<_>>()?;
        (!rules.is_empty()).then_some(Self(rules))
    }

    /// Whether one of them may take this request, by its head.
    pub fn may_take<B>(&self, request: &Request<B>) -> bool {
        let model = model_in_path(request);
        let known = KnownRequest { model, ..KnownRequest::default() };
        self.0.iter().any(|rule| rule.matches.takes(request, known) || rule.matches.awaits(request, model).contains(&true))
    }

    /// The first that takes this request, and its place among them.
    pub fn find<B>(&self, request: &Request<B>, known: KnownRequest<'_>) -> Option<(usize, &Arc<Hydration>)> {
        self.0.iter().enumerate().find(|(_, rule)| rule.matches.takes(request, known))
    }
}
