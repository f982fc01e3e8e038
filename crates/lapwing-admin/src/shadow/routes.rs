//! Why requests are not copied that could have been: what was learnt of routes, and which setting changes it.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use lapwing_shadow::{RouteStanding, ShadowDrop};

/// A route, and whether its requests are repeatable.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RouteView {
    /// As `/stats` names it.
    route: String,
    /// Whether its requests are copied now: enough exchanges in a row had the form of the protocol.
    is_repeatable: bool,
    /// Exchanges that had that form.
    recognised: u64,
    /// Requests that had not, or whose answer had not.
    not_recognised: u64,
}

impl From<RouteStanding> for RouteView {
    fn from(standing: RouteStanding) -> Self {
        let RouteStanding { route, is_repeatable, recognised, not_recognised } = standing;
        Self { route, is_repeatable, recognised, not_recognised }
    }
}

/// How many routes are named in words.
const ROUTES: usize = 8;

/// What keeps requests from being copied, and what to do if they are safe to repeat. `count` is how many were dropped for a reason.
pub(crate) fn in_words(routes: &[RouteView], count: impl Fn(ShadowDrop) -> u64) -> String {
    let mut words = String::new();
    for route in routes.iter().filter(|route| route.not_recognised > 0).take(ROUTES) {
        let RouteView { route, is_repeatable, recognised, not_recognised } = route;
        let now = if *is_repeatable { "is copied now" } else { "is not copied" };
        let _ = writeln!(
            words,
            "{route} {now}: {recognised} exchanges in the form of a known protocol, {not_recognised} not; if it is safe to repeat, name it in \
             shadow.routes"
        );
    }
    for (reason, why) in [
        (
            ShadowDrop::UnknownRoute,
            "are of no known inference protocol by their path, or are forms; shadow.routes names what is safe to repeat",
        ),
        (ShadowDrop::Session, "have a cookie or a CSRF token; shadow.routes names what is safe to repeat"),
        (ShadowDrop::Effect, "have an effect beyond their answer; shadow.routes names what is safe to repeat all the same"),
        (ShadowDrop::Secret, "have a secret in their body; shadow.fields says which members are none"),
    ] {
        let n = count(reason);
        if n > 0 {
            let _ = writeln!(words, "{n} sampled requests are not copied, because they {why}");
        }
    }
    words
}
