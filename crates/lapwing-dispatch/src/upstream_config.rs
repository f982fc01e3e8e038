//! The keys `upstreams`, `routes` and `upstream_policy`: several model servers, and which requests go to which.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::affinity::{AFFINITY, Affinity};
use lapwing_protocol::request_match::{MATCH, RouteMatch, check_match};
use lapwing_settings::{CLIENT_TLS, Checks, ClientTls, Form, HttpScheme, Record, Section, Upstream};

/// How many upstreams there may be.
pub const MAX_UPSTREAMS: usize = 16;
/// How many routes there may be: each request is compared with them, one after the other.
const MAX_ROUTES: usize = 64;
/// How many tags an upstream may have.
const MAX_TAGS: usize = 16;
/// The longest name and value of a tag, in bytes.
const MAX_TAG_BYTES: usize = 64;
/// What an element of [`UpstreamRoute::to`] begins with if it names a tag.
const TAG: &str = "tag:";
/// The longest name of an upstream, in bytes.
const MAX_NAME_BYTES: usize = 63;

/// What an upstream of several is.
pub const UPSTREAM: Record = Record {
    what: "a section with a url, as in {url: http://127.0.0.1:8000, weight: 2}",
    keys: &[
        ("url", Form::Text),
        ("weight", Form::Number),
        ("tags", Form::Named(&Form::Text)),
        ("tls", Form::Record(&CLIENT_TLS)),
    ],
    stand_in: &[("url", "http://127.0.0.1:8000")],
};

/// What a route is.
pub const ROUTE: Record = Record {
    what: "a section, as in {match: {route: /v1/*}, to: [a, b]}",
    keys: &[("match", Form::Record(&MATCH)), ("to", Form::Texts), ("policy", Form::Text), ("affinity", Form::Record(&AFFINITY))],
    stand_in: &[],
};

/// One of several model servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "upstream")]
pub struct NamedUpstream {
    /// Its address, as for `upstream`.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub url: Upstream,
    /// Its share of the requests, in proportion to the weights of the others: 1 to 1,000.
    #[serde(default = "one")]
    pub weight: u32,
    /// What it is, for `routes`, `/stats` and `/metrics`: at most 16 names as labels of Prometheus have them, each with its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// How TLS is spoken to it, instead of `tls.upstream`.
    #[schemars(extend("x-fixed-at-start" = true))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTls>,
}

const fn one() -> u32 {
    1
}

/// How one of several upstreams is chosen. One that takes no connections is passed over while another does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementPolicy {
    /// One after the other, each as often as its weight says.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in flight for its weight; of several, the next in turn.
    LeastRequests,
    /// The one where what is asked of it in flight, with this request, is least for its weight, and for its speed where `dispatch` has learnt that.
    /// Requests are held until their body has told how much they ask for (`hold`); others count as the mean.
    LeastWork,
}

/// Requests that go to some of the upstreams only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "route")]
pub struct UpstreamRoute {
    /// Which requests it takes: those to which all that is given applies.
    #[serde(rename = "match")]
    pub matches: RouteMatch,
    /// The names of the upstreams that they go to, or `tag:NAME=VALUE` for all that have the tag.
    pub to: Vec<String>,
    /// How one of them is chosen. Default: `upstream_policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PlacementPolicy>,
    /// Which of its requests go to the same of these upstreams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
}

/// Whether `to`, of [`UpstreamRoute::to`], stands for the upstream `name`, which is set up so.
#[must_use]
pub fn names_upstream(to: &str, name: &str, upstream: Option<&NamedUpstream>) -> bool {
    match to.strip_prefix(TAG).and_then(|tag| tag.split_once('=')) {
        Some((tag, value)) => upstream.is_some_and(|upstream| upstream.tags.get(tag).is_some_and(|own| own == value)),
        None => to == name,
    }
}

/// Reports the faults of `upstreams` and `routes`.
pub fn check_upstreams(upstreams: &BTreeMap<String, NamedUpstream>, routes: &[UpstreamRoute], checks: &mut Checks) {
    if upstreams.len() > MAX_UPSTREAMS {
        checks.fault("upstreams", upstreams.len(), format!("must be at most {MAX_UPSTREAMS}"));
    }
    for (at, (name, upstream)) in upstreams.iter().enumerate() {
        let key = format!("upstreams.{name}");
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name) {
            let reason = format!("is no name: give 1 to {MAX_NAME_BYTES} letters, digits, -, _ and .");
            checks.fault(&key, name, reason);
        }
        checks.range(&format!("{key}.weight"), &upstream.weight, 1..=1000);
        check_tags(&format!("{key}.tags"), &upstream.tags, checks);
        if let Some(tls) = &upstream.tls {
            let key = format!("{key}.tls");
            if !matches!(upstream.url, Upstream::Http { scheme: HttpScheme::Https, .. }) {
                checks.fault(&key, &upstream.url, "speaks no TLS: give it a url with https, or leave this out");
            }
            checks.section(&key, |checks| tls.check(checks));
        }
        if let Some((twin, _)) = upstreams.iter().take(at).find(|(_, other)| other.url == upstream.url) {
            checks.fault(&format!("{key}.url"), &upstream.url, format!("is that of {twin} already: give that one more weight"));
        }
    }
    if routes.len() > MAX_ROUTES {
        checks.fault("routes", routes.len(), format!("must be at most {MAX_ROUTES}"));
    }
    if !routes.is_empty() && upstreams.is_empty() && checks.is_sound("upstreams") {
        checks.fault("routes", "", "have nowhere to lead: they need the names of `upstreams`");
    }
    for (at, route) in routes.iter().enumerate() {
        check_route(&format!("routes[{at}]"), route, upstreams, checks);
    }
}

fn check_tags(key: &str, tags: &BTreeMap<String, String>, checks: &mut Checks) {
    if tags.len() > MAX_TAGS {
        checks.fault(key, tags.len(), format!("must be at most {MAX_TAGS}"));
    }
    for (name, value) in tags {
        let key = format!("{key}.{name}");
        let is_label = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && !name.starts_with("__");
        if name.is_empty() || name.len() > MAX_TAG_BYTES || !is_label {
            let reason = format!("is no name of a tag: give 1 to {MAX_TAG_BYTES} letters, digits and _, not a digit or __ first");
            checks.fault(&key, name, reason);
        } else if name == "upstream" {
            checks.fault(&key, name, "is the label that has the upstream's own name: take another");
        } else if value.len() > MAX_TAG_BYTES {
            checks.fault(&key, value, format!("must have at most {MAX_TAG_BYTES} bytes"));
        }
    }
}

fn check_route(key: &str, route: &UpstreamRoute, upstreams: &BTreeMap<String, NamedUpstream>, checks: &mut Checks) {
    check_match(&format!("{key}.match"), &route.matches, checks);
    if let Some(affinity) = &route.affinity {
        affinity.check(&format!("{key}.affinity"), checks);
    }
    if route.to.is_empty() {
        checks.fault(&format!("{key}.to"), "", "needs the name of at least one upstream");
    }
    for (at, name) in route.to.iter().enumerate() {
        let place = format!("{key}.to[{at}]");
        let is_known = upstreams.iter().any(|(other, upstream)| names_upstream(name, other, Some(upstream)));
        if !is_known && name.starts_with(TAG) {
            checks.fault(&place, name, "is a tag that none of `upstreams` has: write tag:NAME=VALUE, as one of them has it");
        } else if !is_known {
            let known = upstreams.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            checks.fault(&place, name, format!("is none of `upstreams`: {known}"));
        } else if route.to[..at].contains(name) {
            checks.fault(&place, name, "is there twice: give that upstream more weight");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_records_are_their_fields() {
        UPSTREAM.assert_describes::<NamedUpstream>();
        ROUTE.assert_describes::<UpstreamRoute>();
    }

    fn faults(upstreams: serde_json::Value, routes: serde_json::Value) -> Vec<String> {
        let mut checks = Checks::default();
        let upstreams = serde_json::from_value(upstreams).unwrap();
        let routes: Vec<UpstreamRoute> = serde_json::from_value(routes).unwrap();
        check_upstreams(&upstreams, &routes, &mut checks);
        checks.into_faults().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_fault_names_its_key_and_what_to_do() {
        let two =
            serde_json::json!({"a": {"url": "http://h:1"}, "b": {"url": "http://h:2", "weight": 3, "tags": {"zone": "eu"}}});
        let whole = serde_json::json!([
            {"match": {"route": "POST /v1/*"}, "to": ["a"], "policy": "least_requests"},
            {"match": {"header": "x-tier: batch*", "model": "bert-*", "class": "..31"}, "to": ["b", "a"]},
            {"match": {"model": "m"}, "to": ["tag:zone=eu", "a"]},
        ]);
        assert_eq!(faults(two.clone(), whole), Vec::<String>::new());
        for (route, says) in [
            (serde_json::json!({"to": ["a"]}), "routes[0].match: needs at least one of route, model, class, header"),
            (serde_json::json!({"match": {"route": "v1"}, "to": ["a"]}), "routes[0].match.route: v1: must be a path"),
            (serde_json::json!({"match": {"route": "post /v1"}, "to": ["a"]}), "must begin with a method in capitals"),
            (
                serde_json::json!({"match": {"header": "x y: z"}, "to": ["a"]}),
                "routes[0].match.header: x y: is not a header name",
            ),
            (serde_json::json!({"match": {"model": "m"}}), "routes[0].to: needs the name of at least one upstream"),
            (serde_json::json!({"match": {"model": "m"}, "to": ["c"]}), "routes[0].to[0]: c: is none of `upstreams`: a, b"),
            (serde_json::json!({"match": {"model": "m"}, "to": ["a", "a"]}), "routes[0].to[1]: a: is there twice"),
            (
                serde_json::json!({"match": {"model": "m"}, "to": ["tag:zone=us"]}),
                "routes[0].to[0]: tag:zone=us: is a tag that none of `upstreams` has",
            ),
            (serde_json::json!({"match": {"model": "m"}, "to": ["tag:zone"]}), "routes[0].to[0]: tag:zone: is a tag that none"),
        ] {
            let faults = faults(two.clone(), serde_json::json!([route]));
            assert!(faults.len() == 1 && faults[0].contains(says), "{faults:?}");
        }
        for (tags, says) in [
            (serde_json::json!({"zone-1": "eu"}), "upstreams.a.tags.zone-1: zone-1: is no name of a tag: give 1 to 64 letters"),
            (serde_json::json!({"__zone": "eu"}), "is no name of a tag"),
            (serde_json::json!({"1": "eu"}), "is no name of a tag"),
            (serde_json::json!({"upstream": "a"}), "upstreams.a.tags.upstream: upstream: is the label that has"),
            (serde_json::json!({"zone": "e".repeat(65)}), "must have at most 64 bytes"),
            (
                (0..17).map(|n| (format!("t{n}"), "v".into())).collect::<serde_json::Map<_, _>>().into(),
                "upstreams.a.tags: 17: must",
            ),
        ] {
            let faults = faults(serde_json::json!({"a": {"url": "http://h:1", "tags": tags}}), serde_json::json!([]));
            assert!(faults.len() == 1 && faults[0].contains(says), "{faults:?}");
        }
        for (upstreams, says) in [
            (serde_json::json!({"a b": {"url": "http://h:1"}}), "upstreams.a b: a b: is no name"),
            (serde_json::json!({"a": {"url": "http://h:1", "weight": 0}}), "upstreams.a.weight: 0: must be between 1 and 1000"),
            (
                serde_json::json!({"a": {"url": "h2c://h:1", "tls": {"ca": "/ca"}}}),
                "upstreams.a.tls: h2c://h:1: speaks no TLS: give it a url with https",
            ),
            (
                serde_json::json!({"a": {"url": "https://h:1", "tls": {"key": "/k"}}}),
                "upstreams.a.tls.certificate: off: is missing: a private key needs its certificate",
            ),
            (
                serde_json::json!({"a": {"url": "http://h:1"}, "b": {"url": "http://h:1"}}),
                "upstreams.b.url: http://h:1: is that of a",
            ),
        ] {
            let faults = faults(upstreams, serde_json::json!([]));
            assert!(faults.len() == 1 && faults[0].contains(says), "{faults:?}");
        }
        let many: serde_json::Map<_, _> =
            (0..17).map(|n| (format!("u{n}"), serde_json::json!({"url": format!("http://h:{}", n + 1)}))).collect();
        assert_eq!(faults(many.into(), serde_json::json!([])), ["upstreams: 17: must be at most 16"]);
        assert!(
            faults(serde_json::json!({}), serde_json::json!([{"match": {"model": "m"}, "to": ["a"]}]))[0]
                .contains("nowhere to lead")
        );
    }
}
