//! Which upstreams give the same answers, so that what one of them said may be given again for another.

use http::Request;

use super::{Placement, Upstreams};
use lapwing_cache::Caching;
use lapwing_protocol::request_match::KnownRequest;
use lapwing_settings::ConfigHandle;

impl Upstreams {
    /// What may answer requests again, by the settings of `config`, with keys made with `secret`.
    #[must_use]
    pub fn cached_by(&self, secret: [u8; 32], config: ConfigHandle<lapwing_cache::Config>) -> Caching {
        let health: Vec<_> = std::iter::once(&self.first).chain(&*self.others).map(|one| one.health.clone()).collect();
        Caching::new(secret, move || health.iter().map(|one| one.absences()).sum(), config)
    }
}

impl Placement {
    /// The names of the upstreams that may answer a request, all alike; `None` where a split shows clients different ones.
    pub(crate) fn answering_pool<B>(&self, request: &Request<B>, in_body: KnownRequest<'_>) -> Option<String> {
        let pool = match (self.route_of(request, in_body), &self.split) {
            (None, Some(_)) => return None,
            (route, _) => route.unwrap_or(self.routes.len()),
        };
        let mut names = String::new();
        for place in self.pools.get(pool)?.places() {
            names.push_str(self.candidates.names.get(place)?);
            names.push('\n');
        }
        Some(names)
    }
}
