//! Which requests are captured to be copied: by a share, by a header, by route and model. Decided by the head alone, on the request path;
//! whether one of them is repeated is for its body to say (`repeatable`).

use http::header::COOKIE;
use http::{HeaderMap, Method};

use super::config::Config;
use super::counters::ShadowDrop;
use super::header_names::SHADOW_FIELD;
use super::named_routes::NamedRoutes;
use lapwing_protocol::ShareDraw;
use lapwing_protocol::{Protocols, fold_route};

/// Decides by the configuration.
#[derive(Debug)]
pub struct Sampler {
    share: ShareDraw,
    only: Vec<(Option<String>, Option<String>)>,
    routes: NamedRoutes,
}

/// What the sampler says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// It is captured.
    Taken,
    /// It is drawn, and its head says that it may not be repeated.
    Refused(ShadowDrop),
    /// It is not drawn, or not wanted.
    Not,
}

/// Headers by which a browser's session shows itself besides `Cookie`.
const CSRF: [&str; 4] = ["x-csrf-token", "x-xsrf-token", "x-csrftoken", "csrf-token"];

impl Sampler {
    /// The sampler of a checked configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            share: ShareDraw::new(config.sample.get(), config.header.on().map(|name| name.get().clone())),
            only: config.only.iter().map(|only| (only.route.clone(), only.model.clone())).collect(),
            routes: NamedRoutes::new(&config.routes),
        }
    }

    /// Whether a request with this head is captured. The same trace is drawn, or not, in every process.
    #[must_use]
    pub fn takes(&self, protocols: &Protocols, method: &Method, path: &str, headers: &HeaderMap) -> Sampled {
        if self.share.draws(headers) { self.may_copy(protocols, method, path, headers) } else { Sampled::Not }
    }

    /// The share of requests that it draws, and those whose header asks for it.
    #[must_use]
    pub const fn share(&self) -> &ShareDraw {
        &self.share
    }

    /// The same of a request that counts as drawn.
    #[must_use]
    pub fn may_copy(&self, protocols: &Protocols, method: &Method, path: &str, headers: &HeaderMap) -> Sampled {
        // a connection that is handed over is no exchange
        if headers.contains_key(SHADOW_FIELD) || headers.contains_key(http::header::UPGRADE) {
            return Sampled::Not;
        }
        let is_inference = protocols.may_be_inference(method, path, headers);
        let refused = match () {
            () if !is_inference => Some(ShadowDrop::UnknownRoute),
            () if has_session(headers) => Some(ShadowDrop::Session),
            () => None,
        };
        if refused.is_none() && self.only.is_empty() {
            return Sampled::Taken;
        }
        let folded = fold_route(method.as_str(), path);
        let fits = |(route, model): &(Option<String>, Option<String>)| {
            route.as_ref().is_none_or(|route| *route == folded.name)
                && model.as_deref().is_none_or(|model| Some(model) == folded.model)
        };
        if !self.only.is_empty() && !self.only.iter().any(fits) {
            return Sampled::Not;
        }
        match refused {
            Some(reason) if !self.routes.has(&folded.name, method.as_str(), path) => {
                // what reads does not ask for a model, and is not missed
                if *method == Method::POST { Sampled::Refused(reason) } else { Sampled::Not }
            }
            _ => Sampled::Taken,
        }
    }
}

/// Whether a browser's session stands behind the request: what it asks for is asked in somebody's name.
fn has_session(headers: &HeaderMap) -> bool {
    // to look each of these names up would mean to hash it
    headers.keys().any(|name| *name == COOKIE || CSRF.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use http::HeaderName;

    use super::*;

    const INFER: &str = "/v2/models/m/infer";
    /// Made once: to compile all of them takes milliseconds.
    static PROTOCOLS: LazyLock<Protocols> = LazyLock::new(Protocols::default);

    fn takes(config: &Config, path: &str, headers: &[(&str, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect();
        Sampler::new(config).takes(&PROTOCOLS, &Method::POST, path, &headers) == Sampled::Taken
    }

    fn all() -> Config {
        Config { sample: "100%".parse().unwrap(), ..Config::default() }
    }

    #[test]
    fn the_share_is_drawn_from_the_trace_and_stays() {
        let config = Config { sample: "20%".parse().unwrap(), ..Config::default() };
        let mut taken = 0;
        for n in 0..10_000_u64 {
            // low halves that a ratio sampler of 1 in 1,000 would keep
            let field = format!("00-{:016x}{:016x}-0000000000000001-01", n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n + 1);
            let (first, again) =
                (takes(&config, INFER, &[("traceparent", &field)]), takes(&config, INFER, &[("traceparent", &field)]));
            assert_eq!(first, again);
            taken += u32::from(first);
        }
        assert!((1_900..=2_100).contains(&taken), "{taken}");
    }

    #[test]
    fn the_ends_of_the_share_are_exact() {
        let none = Config { sample: "0%".parse().unwrap(), ..Config::default() };
        for _ in 0..1_000 {
            assert!(!takes(&none, INFER, &[]) && takes(&all(), INFER, &[]));
        }
        let asked = Config { header: "x-shadow".parse().unwrap(), ..none };
        assert!(takes(&asked, INFER, &[("x-shadow", "1")]) && !takes(&asked, INFER, &[]));
    }

    #[test]
    fn only_what_is_safe_to_repeat_is_copied() {
        assert!(!takes(&all(), "/orders", &[]), "of no known protocol");
        let listed = Config { routes: vec!["POST /orders".to_owned()], ..all() };
        assert!(takes(&listed, "/orders", &[]) && !takes(&listed, "/payments", &[]));
        let listed = Config { routes: vec!["POST /orders/*".to_owned()], ..all() };
        assert!(takes(&listed, "/orders/a/b", &[]) && takes(&listed, "/orders/7", &[("cookie", "a=b")]), "the user knows better");
        assert!(!takes(&listed, "/orders", &[]) && !takes(&listed, "/v1/orders/7", &[]));
        assert!(!takes(&all(), "/inference.GRPCInferenceService/ModelStreamInfer", &[("content-type", "application/grpc")]));
        assert!(takes(&all(), "/inference.GRPCInferenceService/ModelInfer", &[("content-type", "application/grpc")]));
        assert!(!takes(&all(), INFER, &[(SHADOW_FIELD.as_str(), "1")]), "a copy is not copied");
        assert!(!takes(&all(), INFER, &[("upgrade", "websocket")]));
    }

    #[test]
    fn the_head_of_a_form_or_of_a_session_is_enough_to_refuse_it() {
        let refused = |headers: &[(&str, &str)]| {
            let headers =
                headers.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect();
            Sampler::new(&all()).takes(&PROTOCOLS, &Method::POST, "/", &headers)
        };
        assert_eq!(refused(&[("content-type", "application/json")]), Sampled::Taken, "its body decides");
        for kind in [
            "application/x-www-form-urlencoded",
            "Application/X-WWW-Form-Urlencoded; charset=utf-8",
            "multipart/form-data; boundary=x",
            "text/html",
        ] {
            assert_eq!(refused(&[("content-type", kind)]), Sampled::Refused(ShadowDrop::UnknownRoute), "{kind}");
        }
        for name in ["cookie", "x-csrf-token", "x-xsrf-token", "x-csrftoken", "csrf-token"] {
            assert_eq!(refused(&[(name, "a")]), Sampled::Refused(ShadowDrop::Session), "{name}");
        }
        let none = Sampler::new(&Config { sample: "0%".parse().unwrap(), ..Config::default() });
        let headers = HeaderMap::new();
        assert_eq!(none.takes(&PROTOCOLS, &Method::POST, "/orders", &headers), Sampled::Not, "not drawn, not counted");
        assert_eq!(Sampler::new(&all()).takes(&Protocols::default(), &Method::GET, "/orders", &headers), Sampled::Not);
    }

    #[test]
    fn routes_and_models_narrow_it() {
        let only = |route: Option<&str>, model: Option<&str>| {
            let only = super::super::config::OnlyThese { route: route.map(Into::into), model: model.map(Into::into) };
            Config { only: vec![only], ..all() }
        };
        assert!(takes(&only(Some("POST /v2/models/{model}/infer"), None), INFER, &[]));
        assert!(takes(&only(None, Some("m")), INFER, &[]) && !takes(&only(None, Some("n")), INFER, &[]));
        assert!(!takes(&only(Some("POST /v1/embeddings"), None), INFER, &[]));
    }
}
