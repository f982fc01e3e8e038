//! Whether a request is what settings ask for: by its route, its model, its work and its header fields.

mod settings;

use http::{HeaderName, Method, Request};

pub use settings::{MATCH, RouteMatch, check_match};

use crate::{fold_route, matches_glob};
use lapwing_settings::WorkRange;

/// What is known of a request besides its head.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownRequest<'a> {
    /// The model that its path or its body names.
    pub model: Option<&'a str>,
    /// How much it asks for.
    pub work: Option<u64>,
    /// A key in its body that decides too, if there is one.
    pub key: Option<&'a [u8]>,
}

/// What a body has to tell before it is known where its request goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwaitedOfBody {
    /// The model.
    pub model: bool,
    /// The work.
    pub work: bool,
    /// A key that divides requests.
    pub key: bool,
}

impl AwaitedOfBody {
    /// The same and the work, and with `and_model` the model.
    #[must_use]
    pub const fn and_work(self, and_model: bool) -> Self {
        Self { work: true, model: self.model || and_model, ..self }
    }

    /// `None` if nothing is awaited.
    #[must_use]
    pub fn if_any(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}

/// What a request must be. What is `None` may be anything.
#[derive(Debug)]
pub struct RequestMatch {
    method: Option<Method>,
    path: Option<Box<str>>,
    model: Option<Box<str>>,
    work: Option<WorkRange>,
    /// A field and, if it is given, what one of its values must be.
    header: Option<(HeaderName, Option<Box<str>>)>,
}

impl RequestMatch {
    /// From settings that have been checked.
    #[must_use]
    pub fn new(matches: &RouteMatch) -> Self {
        let (method, path) = matches.method_and_path().unzip();
        let header = matches.name_and_value().and_then(|(name, value)| Some((name.parse().ok()?, value.map(Into::into))));
        Self {
            method: method.flatten().and_then(|name| Method::from_bytes(name.as_bytes()).ok()),
            path: path.map(Into::into),
            model: matches.model.as_deref().map(Into::into),
            work: matches.class,
            header,
        }
    }

    /// Whether it takes this request, by its head and what else is `known` of it.
    pub fn takes<B>(&self, request: &Request<B>, known: KnownRequest<'_>) -> bool {
        self.fits_model(known.model).unwrap_or(false)
            && self.work.is_none_or(|range| known.work.is_some_and(|work| range.contains(work)))
            && self.fits_head(request)
    }

    /// What of the body of this request decides whether it takes it, beside its head: the model, the work.
    pub fn awaits<B>(&self, request: &Request<B>, in_path: Option<&str>) -> [bool; 2] {
        let fits_model = self.fits_model(in_path);
        let may_fit = fits_model != Some(false) && self.fits_head(request);
        [may_fit && fits_model.is_none(), may_fit && self.work.is_some()]
    }

    /// Whether the model is the right one; `None` if it is not known.
    fn fits_model(&self, model: Option<&str>) -> Option<bool> {
        let Some(glob) = self.model.as_deref() else { return Some(true) };
        Some(matches_glob(glob.as_bytes(), model?.as_bytes()))
    }

    /// Whether what it says of method, path and fields applies to this request.
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
pub fn model_in_path<B>(request: &Request<B>) -> Option<&str> {
    fold_route(request.method().as_str(), request.uri().path()).model
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_given_must_apply() {
        let route = RequestMatch::new(&RouteMatch {
            route: Some("POST /v2/models/*".into()),
            model: Some("bert*".into()),
            header: Some("x-tier: batch*".into()),
            class: None,
        });
        let request = |method: &str, path: &str, tiers: &[&str]| {
            let request = Request::builder().method(method).uri(path);
            tiers.iter().fold(request, |request, tier| request.header("x-tier", *tier)).body(()).unwrap()
        };
        let path = "/v2/models/bert-base/infer";
        let takes = |request: &Request<()>| {
            route.takes(request, KnownRequest { model: model_in_path(request), ..KnownRequest::default() })
        };
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
        let by_presence = RequestMatch::new(&RouteMatch { header: Some("x-tier".into()), ..RouteMatch::default() });
        let takes = |tiers: &[&str]| by_presence.takes(&request("GET", "/", tiers), KnownRequest::default());
        assert!(takes(&[""]) && !takes(&[]));
    }
}
