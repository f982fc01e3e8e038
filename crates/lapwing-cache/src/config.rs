//! The section `cache`: which answers are kept, for how long, and who may share them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::coalesce::CoalesceBounds;
use crate::key::{KeyForm, KeyRules, KeyScope};
use crate::storable::StoringRules;
use crate::trust::TrustRules;
use crate::verify::StaleLimit;
use crate::warm_config::WarmConfig;
use lapwing_protocol::request_match::{MATCH, RouteMatch, check_match};
use lapwing_redis::RedisConfig;
use lapwing_settings::{Checks, FieldName, Form, Period, Record, Section, Share, Size, Switch};

/// How many routes there may be: each request is compared with them, one after the other.
const MAX_ROUTES: usize = 64;
/// How many fields may be in the key beside those that always are.
const MAX_VARY: usize = 16;
/// How many requests may lead others at once.
const MAX_LEADERS: usize = 4_096;
/// A store must have room for so many of the largest answers.
const ENTRIES: u64 = 8;

/// What a route is.
const ROUTE: Record = Record {
    what: "a section, as in {match: {route: POST /v2/models/*}, mode: on, ttl: 10m}",
    keys: &[
        ("match", Form::Record(&MATCH)),
        ("mode", Form::Text),
        ("key", Form::Text),
        ("vary", Form::Texts),
        ("scope", Form::Text),
        ("ttl", Form::Text),
        ("max_entry", Form::Text),
    ],
    stand_in: &[],
};

/// Whether requests are answered by earlier answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// They are not, and nothing is counted.
    #[default]
    Off,
    /// They are not; it is counted what it would bring.
    Observe,
    /// They are, where the upstream has been shown to give the same answer to the same question.
    On,
}

/// What of a body makes requests the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheKeyForm {
    /// Its bytes.
    #[default]
    Bytes,
    /// Its tensors, in the Open Inference Protocol: the order of keys, white space, the way numbers are written and `id` do not
    /// matter. Other bodies: their bytes.
    Tensors,
}

/// Who may be given the answer that somebody else was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Who presents the same credentials: `Authorization`, cookies, keys, and what gateways say of who asks.
    #[default]
    Authorization,
    /// Everybody.
    Shared,
}

/// The section `cache.coalesce`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct CoalesceConfig {
    /// How many requests may wait for the answer to the same one; further ones go to their upstream. 0: none.
    pub followers: usize,
    /// How long one may wait; then it goes to its upstream.
    pub wait: Period,
}

impl Default for CoalesceConfig {
    fn default() -> Self {
        Self { followers: 256, wait: Period::from_secs(10) }
    }
}

/// Requests whose answers are kept in a way of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "cached route")]
pub struct CacheRoute {
    /// Which requests it takes: those to which all that is given applies. A request is of the first route that takes it.
    #[serde(rename = "match")]
    pub matches: RouteMatch,
    /// Instead of `cache.mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<CacheMode>,
    /// Instead of `cache.key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<CacheKeyForm>,
    /// Instead of `cache.vary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vary: Option<Vec<FieldName>>,
    /// Instead of `cache.scope`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<CacheScope>,
    /// Instead of `cache.ttl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Period>,
    /// Instead of `cache.max_entry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_entry: Option<Size>,
}

/// The section `cache`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// Whether requests are answered by earlier answers.
    pub mode: CacheMode,
    /// What of a body makes requests the same.
    pub key: CacheKeyForm,
    /// Header fields that change an answer, beside `Content-Type`, `Content-Encoding` and those that begin with `Accept`.
    pub vary: Vec<FieldName>,
    /// Who may be given the answer that somebody else was given.
    pub scope: CacheScope,
    /// How long an answer is given, unless it says itself that it is not good for so long.
    pub ttl: Period,
    /// The memory for answers, with all that keeps them.
    pub max_bytes: Size,
    /// The largest body of an answer.
    pub max_entry: Size,
    /// How many times in a row the upstream has to give the answer that it gave before, on a route and for a model, until requests are
    /// answered from here. 0: at once.
    pub proof: u32,
    /// The share of requests answered from here that the upstream is asked all the same, to compare.
    pub verify: Share,
    /// The share of stale answers, of those compared, above which nothing is answered from here any more. 0: the first one.
    pub max_stale: Share,
    /// An answer that was given before, and is given while less than this share of its time is left, is asked for anew beside that, if
    /// no other request is in flight: the next one finds a fresh answer.
    pub refresh: Switch<Share>,
    /// The same request several times at once: one is asked, the others are given its answer.
    pub coalesce: CoalesceConfig,
    /// Answers that are asked for before somebody wants them.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub warm: WarmConfig,
    /// A Redis that pods share: who has no answer asks there before it asks its upstream.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub redis: RedisConfig,
    /// Requests whose answers are kept in a way of their own, or not at all.
    pub routes: Vec<CacheRoute>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: CacheMode::Off,
            key: CacheKeyForm::Bytes,
            vary: Vec::new(),
            scope: CacheScope::Authorization,
            ttl: Period::from_secs(60),
            max_bytes: Size::mib(64),
            max_entry: Size::mib(1),
            proof: 64,
            verify: Share::ONE_PERCENT,
            max_stale: Share::of_percent(0),
            refresh: Switch::Off,
            coalesce: CoalesceConfig::default(),
            warm: WarmConfig::default(),
            redis: RedisConfig::default(),
            routes: Vec::new(),
        }
    }
}

impl Config {
    /// What holds for requests of a route, or of none.
    #[must_use]
    pub fn settings(&self, route: Option<&CacheRoute>) -> CacheSettings {
        let route = route.cloned().unwrap_or_default();
        let form = match route.key.unwrap_or(self.key) {
            CacheKeyForm::Bytes => KeyForm::Bytes,
            CacheKeyForm::Tensors => KeyForm::Tensors,
        };
        let scope = match route.scope.unwrap_or(self.scope) {
            CacheScope::Authorization => KeyScope::Credentials,
            CacheScope::Shared => KeyScope::Shared,
        };
        let vary = route.vary.as_ref().unwrap_or(&self.vary).iter().map(|name| name.get().clone()).collect();
        CacheSettings {
            mode: route.mode.unwrap_or(self.mode),
            keys: KeyRules { form, scope, vary },
            storing: StoringRules {
                ttl_ns: route.ttl.unwrap_or(self.ttl).as_nanos(),
                max_entry: route.max_entry.unwrap_or(self.max_entry).get(),
            },
        }
    }

    /// The bounds of those who wait for the same answer; `None` if nobody may.
    #[must_use]
    pub fn coalesce_bounds(&self) -> Option<CoalesceBounds> {
        let CoalesceConfig { followers, wait } = self.coalesce;
        (followers > 0).then(|| CoalesceBounds { followers, leaders: MAX_LEADERS, wait_ns: wait.as_nanos() })
    }

    /// What is demanded of those whose answers are given again.
    #[must_use]
    pub fn trust_rules(&self) -> TrustRules {
        TrustRules { proof: u64::from(self.proof), limit: self.stale_limit() }
    }

    /// When nothing is answered from here any more.
    #[must_use]
    pub fn stale_limit(&self) -> StaleLimit {
        if self.max_stale.get() == 0.0 { StaleLimit::First } else { StaleLimit::Share(self.max_stale.get()) }
    }

    /// The largest body that any answer may have.
    #[must_use]
    pub fn largest_entry(&self) -> Size {
        self.routes.iter().filter_map(|route| route.max_entry).fold(self.max_entry, Size::max)
    }
}

/// What holds for some of the requests.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// Whether they are answered by earlier answers.
    pub mode: CacheMode,
    /// How their keys are made.
    pub keys: KeyRules,
    /// Which answers are stored.
    pub storing: StoringRules,
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] =
        &[("vary", Form::Texts), ("redis", Form::Section(RedisConfig::FORMS)), ("routes", Form::List(&ROUTE))];

    fn check(&self, checks: &mut Checks) {
        checks.range("ttl", &self.ttl, TTL[0]..=TTL[1]);
        checks.range("max_bytes", &self.max_bytes, Size::mib(8)..=Size::mib(1 << 20));
        check_entry("max_entry", self.max_entry, self.max_bytes, checks);
        checks.range("proof", &self.proof, 0..=1_000_000);
        checks.range("verify", &self.verify, Share::of_percent(0)..=Share::of_percent(100));
        checks.range("max_stale", &self.max_stale, Share::of_percent(0)..=Share::of_percent(50));
        checks.switch_range("refresh", &self.refresh, Share::ONE_PERCENT..=Share::of_percent(90));
        check_vary("vary", &self.vary, checks);
        checks.section("coalesce", |checks| {
            checks.range("followers", &self.coalesce.followers, 0..=65_536);
            checks.range("wait", &self.coalesce.wait, Period::from_millis(1)..=Period::from_secs(3_600));
        });
        checks.section("warm", |checks| self.warm.check(checks));
        checks.section("redis", |checks| self.redis.check(checks));
        if self.routes.len() > MAX_ROUTES {
            checks.fault("routes", self.routes.len(), format!("must be at most {MAX_ROUTES}"));
        }
        for (at, route) in self.routes.iter().enumerate() {
            let key = format!("routes[{at}]");
            check_match(&format!("{key}.match"), &route.matches, checks);
            checks.optional_range(&format!("{key}.ttl"), route.ttl.as_ref(), TTL[0]..=TTL[1]);
            if let Some(max_entry) = route.max_entry {
                check_entry(&format!("{key}.max_entry"), max_entry, self.max_bytes, checks);
            }
            check_vary(&format!("{key}.vary"), route.vary.as_deref().unwrap_or_default(), checks);
        }
    }
}

/// The shortest and the longest time for which an answer may be given.
const TTL: [Period; 2] = [Period::from_millis(100), Period::from_secs(30 * 86_400)];

fn check_entry(key: &str, max_entry: Size, max_bytes: Size, checks: &mut Checks) {
    checks.range(key, &max_entry, Size::kib(1)..=Size::mib(256));
    if max_entry.get().saturating_mul(ENTRIES) > max_bytes.get() {
        checks.fault(
            key,
            max_entry,
            format!("must be at most an eighth of max_bytes, {max_bytes}: give that more, or this less"),
        );
    }
}

fn check_vary(key: &str, names: &[FieldName], checks: &mut Checks) {
    if names.len() > MAX_VARY {
        checks.fault(key, names.len(), format!("must be at most {MAX_VARY}"));
    }
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            checks.fault(&format!("{key}[{at}]"), name, "is there twice");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(config: serde_json::Value) -> Config {
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn the_keys_of_a_route_are_its_fields() {
        ROUTE.assert_describes::<CacheRoute>();
    }

    #[test]
    fn each_fault_names_its_key_and_what_to_do() {
        let faults = |value: serde_json::Value| {
            let mut checks = Checks::default();
            config(value).check(&mut checks);
            checks.into_faults().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let whole = serde_json::json!({"mode": "on", "key": "tensors", "vary": ["X-Locale"], "scope": "shared", "ttl": "10m", "max_bytes": "1GiB",
            "verify": "5%", "max_stale": "0.1%", "coalesce": {"followers": 0, "wait": "1s"},
            "routes": [{"match": {"route": "POST /v2/models/*", "model": "bert*"}, "mode": "off"}]});
        assert_eq!(faults(whole), Vec::<String>::new());
        assert_eq!(faults(serde_json::json!({})), Vec::<String>::new());
        for (value, says) in [
            (serde_json::json!({"ttl": "10ms"}), "ttl: 10ms: must be between 100ms and 720h"),
            (serde_json::json!({"max_bytes": "1KiB", "max_entry": "100B"}), "max_bytes: 1KiB: must be between 8MiB and 1TiB"),
            (serde_json::json!({"max_entry": "9MiB"}), "max_entry: 9MiB: must be at most an eighth of max_bytes, 64MiB"),
            (serde_json::json!({"max_entry": "10B"}), "max_entry: 10B: must be between 1KiB and 256MiB"),
            (serde_json::json!({"max_stale": "60%"}), "max_stale: 60%: must be between 0% and 50%"),
            (serde_json::json!({"vary": ["a", "A"]}), "vary[1]: a: is there twice"),
            (serde_json::json!({"coalesce": {"followers": 100_000}}), "coalesce.followers: 100000: must be between 0 and 65536"),
            (serde_json::json!({"refresh": "95%"}), "refresh: 95%: must be between 1% and 90%"),
            (serde_json::json!({"warm": {"timeout": "2h"}}), "warm.timeout: 2h: must be between 1s and 1h"),
            (serde_json::json!({"coalesce": {"wait": "2h"}}), "coalesce.wait: 2h: must be between 1ms and 1h"),
            (
                serde_json::json!({"routes": [{"mode": "on"}]}),
                "routes[0].match: needs at least one of route, model, class, header",
            ),
            (serde_json::json!({"routes": [{"match": {"model": "m"}, "ttl": "999h"}]}), "routes[0].ttl: 999h: must be"),
            (
                serde_json::json!({"routes": [{"match": {"model": "m"}, "max_entry": "16MiB"}]}),
                "routes[0].max_entry: 16MiB: must be at most",
            ),
            (
                serde_json::json!({"routes": [{"match": {"model": "m"}, "vary": ["a", "a"]}]}),
                "routes[0].vary[1]: a: is there twice",
            ),
        ] {
            let faults = faults(value);
            assert!(faults.iter().any(|fault| fault.contains(says)), "{says}: {faults:?}");
        }
        assert!(serde_json::from_value::<Config>(serde_json::json!({"mode": "maybe"})).is_err());
        assert!(serde_json::from_value::<Config>(serde_json::json!({"vary": ["a b"]})).is_err());
    }

    #[test]
    fn a_route_has_what_it_does_not_say_from_the_section() {
        let config = config(serde_json::json!({"mode": "observe", "vary": ["x-a"], "ttl": "10s", "max_stale": "1%", "routes": [
            {"match": {"model": "m"}, "mode": "on", "key": "tensors", "scope": "shared", "vary": [], "max_entry": "2MiB"}]}));
        let (all, route) = (config.settings(None), config.settings(config.routes.first()));
        assert_eq!(
            (all.mode, all.keys.form, all.keys.scope, all.keys.vary.len()),
            (CacheMode::Observe, KeyForm::Bytes, KeyScope::Credentials, 1)
        );
        assert_eq!(
            (route.mode, route.keys.form, route.keys.scope, route.keys.vary.len()),
            (CacheMode::On, KeyForm::Tensors, KeyScope::Shared, 0)
        );
        assert_eq!((route.storing.ttl_ns, route.storing.max_entry), (10_000_000_000, 2 << 20));
        assert_eq!((config.stale_limit(), config.largest_entry()), (StaleLimit::Share(0.01), Size::mib(2)));
        assert_eq!(Config::default().stale_limit(), StaleLimit::First);
        assert_eq!(config.coalesce_bounds().unwrap().wait_ns, 10_000_000_000);
    }

    #[test]
    fn there_is_a_schema_of_every_key() {
        let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
        let keys: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        let mut fields = lapwing_settings::fields_of::<Config>();
        fields.sort_unstable();
        assert_eq!(keys, fields);
    }
}
