//! What holds for a request: the settings of the first route that takes it, or of the section.

use std::sync::Arc;

use http::Request;

use crate::config::{CacheMode, CacheSettings, Config};
use lapwing_protocol::request_match::{AwaitedOfBody, KnownRequest, RequestMatch, model_in_path};

/// What is known of a request, with the model that its path names.
pub(crate) fn with_path<'a, B>(request: &'a Request<B>, known: KnownRequest<'a>) -> KnownRequest<'a> {
    KnownRequest { model: known.model.or_else(|| model_in_path(request)), ..known }
}

/// The routes of a configuration that has been checked, compiled.
#[derive(Debug)]
pub struct CacheRoutes {
    routes: Box<[(RequestMatch, Arc<CacheSettings>)]>,
    other: Arc<CacheSettings>,
}

impl CacheRoutes {
    /// Those of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let routes =
            config.routes.iter().map(|route| (RequestMatch::new(&route.matches), Arc::new(config.settings(Some(route)))));
        Self { routes: routes.collect(), other: Arc::new(config.settings(None)) }
    }

    /// Whether no request is answered from the cache, and nothing is counted.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.other.mode == CacheMode::Off && self.routes.iter().all(|(_, settings)| settings.mode == CacheMode::Off)
    }

    /// Whether some requests are answered from the cache.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.other.mode == CacheMode::On || self.routes.iter().any(|(_, settings)| settings.mode == CacheMode::On)
    }

    /// What holds for this request, by its head and what else is `known` of it.
    pub fn of<B>(&self, request: &Request<B>, known: KnownRequest<'_>) -> &Arc<CacheSettings> {
        let first = self.routes.iter().find(|(matches, _)| matches.takes(request, known));
        first.map_or(&self.other, |(_, settings)| settings)
    }

    /// What the body of a request has to tell before it is known what holds for it; `None` if its head is enough.
    pub fn awaits<B>(&self, request: &Request<B>) -> Option<AwaitedOfBody> {
        let in_path = model_in_path(request);
        let [mut model, mut work] = [false; 2];
        for (matches, _) in &self.routes {
            let [of_model, of_work] = matches.awaits(request, in_path);
            model |= of_model;
            work |= of_work;
        }
        AwaitedOfBody { model, work, key: false }.if_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_route_that_takes_a_request_holds() {
        let routes = |value| CacheRoutes::new(&serde_json::from_value(value).unwrap());
        let some = routes(serde_json::json!({"ttl": "1s", "routes": [
            {"match": {"route": "POST /v2/*", "model": "a*"}, "mode": "on"},
            {"match": {"route": "POST /v2/*"}, "mode": "observe"},
            {"match": {"route": "/v1/embeddings", "model": "m"}, "mode": "on"},
        ]}));
        let request = |path: &str| Request::post(path).body(()).unwrap();
        let mode = |path: &str, model| some.of(&request(path), KnownRequest { model, ..KnownRequest::default() }).mode;
        assert_eq!(mode("/v2/models/ab/infer", Some("ab")), CacheMode::On);
        assert_eq!(mode("/v2/models/b/infer", Some("b")), CacheMode::Observe);
        assert_eq!(mode("/v1/embeddings", Some("m")), CacheMode::On);
        assert_eq!(mode("/v1/embeddings", None), CacheMode::Off);
        assert!(!some.is_off() && routes(serde_json::json!({})).is_off());
        // the path of the first two names the model
        assert_eq!(some.awaits(&request("/v2/models/ab/infer")), None);
        assert_eq!(some.awaits(&request("/v1/embeddings")), Some(AwaitedOfBody { model: true, work: false, key: false }));
        assert_eq!(some.awaits(&request("/elsewhere")), None);
    }
}
