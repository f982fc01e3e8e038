//! What requests a route takes, in the form in which each is compared with it.

use http::{HeaderName, Method, Request};

use super::RouteMatch;
use lapwing_protocol::{fold_route, matches_glob};

/// What a request must be. What is `None` may be anything.
#[derive(Debug)]
pub(crate) struct Route {
    method: Option<Method>,
    path: Option<Box<str>>,
    model: Option<Box<str>>,
    /// A field and, if it is given, what one of its values must be.
    header: Option<(HeaderName, Option<Box<str>>)>,
}

impl Route {
    /// From settings that have been checked.
    pub(crate) fn new(matches: &RouteMatch) -> Self {
        let (method, path) = matches.method_and_path().unzip();
        let header = matches.name_and_value().and_then(|(name, value)| Some((name.parse().ok()?, value.map(Into::into))));
        Self {
            method: method.flatten().and_then(|name| Method::from_bytes(name.as_bytes()).ok()),
            path: path.map(Into::into),
            model: matches.model.as_deref().map(Into::into),
            header,
        }
    }

    /// Whether it takes this request, which names `model`, if that is known.
    pub(crate) fn takes<B>(&self, request: &Request<B>, model: Option<&str>) -> bool {
        let glob = self.model.as_deref();
        glob.is_none_or(|glob| model.is_some_and(|model| matches_glob(glob.as_bytes(), model.as_bytes())))
            && self.fits_head(request)
    }

    /// Whether it takes this request if its model is the right one, and only then.
    pub(crate) fn depends_on_model<B>(&self, request: &Request<B>) -> bool {
        self.model.is_some() && self.fits_head(request)
    }

    /// Whether all that it says of a head, except for the model, applies to this request.
    fn fits_head<B>(&self, request: &Request<B>) -> bool {
        let path = request.uri().path();
        let is_of = |glob: &str, text: &[u8]| matches_glob(glob.as_bytes(), text);
        self.method.as_ref().is_none_or(|method| method == request.method())
            && self.path.as_deref().is_none_or(|glob| is_of(glob, path.as_bytes()))
            && self.header.as_ref().is_none_or(|(name, value)| match value {
                Some(glob) => request.headers().get_all(name).iter().any(|value| is_of(glob, value.as_bytes())),
                None => request.headers().contains_key(name),
            })
    }
}

/// The model that the path of a request names.
pub(crate) fn model_in_path<B>(request: &Request<B>) -> Option<&str> {
    fold_route(request.method().as_str(), request.uri().path()).model
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_given_must_apply() {
        let route = Route::new(&RouteMatch {
            route: Some("POST /v2/models/*".into()),
            model: Some("bert*".into()),
            header: Some("x-tier: batch*".into()),
        });
        let request = |method: &str, path: &str, tiers: &[&str]| {
            let request = Request::builder().method(method).uri(path);
            tiers.iter().fold(request, |request, tier| request.header("x-tier", *tier)).body(()).unwrap()
        };
        let path = "/v2/models/bert-base/infer";
        let takes = |request: &Request<()>| route.takes(request, model_in_path(request));
        assert!(takes(&request("POST", path, &["online", "batch-2"])));
        for other in [
            request("GET", path, &["batch"]),
            request("POST", "/v2/models/gpt/infer", &["batch"]),
            request("POST", "/v1/models/bert-base/infer", &["batch"]),
            request("POST", path, &["online"]),
            request("POST", path, &[]),
        ] {
            assert!(!takes(&other), "{other:?}");
        }
        let by_presence = Route::new(&RouteMatch { header: Some("x-tier".into()), ..RouteMatch::default() });
        assert!(by_presence.takes(&request("GET", "/", &[""]), None) && !by_presence.takes(&request("GET", "/", &[]), None));
    }
}
