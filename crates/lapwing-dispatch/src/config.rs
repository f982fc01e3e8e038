//! The section `dispatch`: the queue in front of the upstreams.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ask::{HedgeSettings, QueueClass, QueueOrder, QueueSettings};
use lapwing_protocol::request_match::{MATCH, RouteMatch, check_match};
use lapwing_settings::{Checks, Form, Period, Ratio, Record, Section, Share, Slots, Switch, Toggle};

/// How many classes there may be, besides the last, which takes what no other does.
const MAX_CLASSES: usize = 8;
/// The longest name of a class, in bytes.
const MAX_NAME_BYTES: usize = 63;
/// The class of what no other takes.
pub(crate) const OTHER_CLASS: &str = "other";

/// Whether requests wait here rather than at their upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DispatchMode {
    /// They do not, and nothing is learnt.
    #[default]
    Off,
    /// They do not; `/dispatch` says what it would bring.
    Observe,
    /// They do, where it is known what requests take and how many the upstream works on at once.
    On,
}

/// In which order requests go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DispatchOrder {
    /// The first whose arrival, and `patience` times what it takes, is over.
    #[default]
    Due,
    /// The first that came.
    Fifo,
}

/// Which requests are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DispatchRefusal {
    /// Those that would miss their deadline, with 429 or `RESOURCE_EXHAUSTED`.
    #[default]
    Late,
    /// None.
    Never,
}

/// Whether requests that take long are sent to a second upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HedgeMode {
    /// They are not.
    #[default]
    Off,
    /// They are not; those that would be are counted.
    Observe,
    /// They are, and who answers first answers.
    On,
}

/// The section `dispatch.hedge`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct HedgeConfig {
    /// Whether requests that take long are sent to a second upstream that is idle, if they may be repeated.
    pub mode: HedgeMode,
    /// A request takes long once an upstream has worked on it for longer than this share of its class takes.
    pub quantile: Share,
    /// How much time second requests may take, as a share of that of all requests, by what they are expected to take.
    pub budget: Share,
    /// How many may come at once, while the budget is unused.
    pub burst: u32,
    /// Above this share of busy slots, over ten seconds, there is none.
    pub max_utilisation: Share,
    /// Requests that are expected to take longer go to two upstreams at once while less than 30% of the slots are busy.
    pub dual_above: Switch<Period>,
    /// The name of one of `upstreams` that is sent second requests only, and only of routes and models for which the shadow target of the same name
    /// and address, such as the engine's server, has given the same answers.
    pub spare: String,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self {
            mode: HedgeMode::Off,
            quantile: Share::of_percent(98),
            budget: Share::of_percent(2),
            burst: 10,
            max_utilisation: Share::of_percent(90),
            dual_above: Switch::Off,
            spare: String::new(),
        }
    }
}

impl HedgeConfig {
    /// The spare upstream's name, if there is one.
    #[must_use]
    pub fn spare(&self) -> Option<&str> {
        Some(&*self.spare).filter(|name| !name.is_empty())
    }

    fn settings(&self) -> HedgeSettings {
        HedgeSettings {
            quantile: self.quantile.get(),
            budget: self.budget.get(),
            burst: self.burst,
            max_utilisation: self.max_utilisation.get(),
            dual_above_ns: self.dual_above.on().map(|above| above.as_nanos()),
            spare: None,
        }
    }

    fn check(&self, checks: &mut Checks) {
        checks.range("quantile", &self.quantile, Share::of_percent(50)..=Share::of_percent(100));
        checks.range("budget", &self.budget, Share::of_percent(0)..=Share::of_percent(50));
        checks.range("burst", &self.burst, 1..=1_000);
        checks.switch_range("dual_above", &self.dual_above, Period::from_millis(1)..=Period::from_secs(3_600));
    }
}

/// The section `dispatch`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// Whether requests wait here rather than at their upstream.
    pub mode: DispatchMode,
    /// How many requests each upstream works on at once. `auto`: found out; where one does not work on some at a time, one after the other,
    /// nothing waits in front of it.
    pub slots: Slots,
    /// In which order requests of a class go.
    pub order: DispatchOrder,
    /// With `due`: a request lets others pass that come within so many times of what it takes.
    pub patience: Ratio,
    /// Who shares the upstreams. A request is of the first class that takes it, or of the last, `other`, with the weight 1.
    pub classes: Vec<DispatchClass>,
    /// Whether a request is refused that would miss its deadline: `grpc-timeout`, `timeout` of the Open Inference Protocol,
    /// `proxy.deadline_header`, or `budget`.
    pub reject: DispatchRefusal,
    /// The time that a request has which names no deadline.
    pub budget: Switch<Period>,
    /// How many may wait; further ones go to their upstream at once.
    pub max_waiting: usize,
    /// How long one may wait; then it goes to its upstream, whatever is there.
    pub max_wait: Period,
    /// Each minute, for so long, upstreams are sent three more requests at once, to see whether they still work on no more.
    pub recheck: Switch<Period>,
    /// Second requests for those that take long.
    pub hedge: HedgeConfig,
}

/// Some of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "class")]
pub struct DispatchClass {
    /// What it is called on every surface.
    pub name: String,
    /// Which requests it takes: those to which all that is given applies.
    #[serde(rename = "match")]
    pub matches: RouteMatch,
    /// Its share of the time of the upstreams, in proportion to the weights of the others: 1 to 1,000.
    pub weight: u32,
    /// Whether it waits while any other class has something to send.
    pub background: Toggle,
}

impl Default for DispatchClass {
    fn default() -> Self {
        Self { name: String::new(), matches: RouteMatch::default(), weight: 1, background: Toggle::Off }
    }
}

/// What a class is.
const CLASS: Record = Record {
    what: "a section, as in {name: batch, match: {header: 'x-tier: batch'}, background: on}",
    keys: &[("name", Form::Text), ("match", Form::Record(&MATCH)), ("weight", Form::Number), ("background", Form::Text)],
    stand_in: &[],
};

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: DispatchMode::Off,
            slots: Slots::Auto,
            order: DispatchOrder::Due,
            patience: Ratio::of_hundredths(200),
            classes: Vec::new(),
            reject: DispatchRefusal::Late,
            budget: Switch::Off,
            max_waiting: 1_024,
            max_wait: Period::from_secs(10),
            recheck: Switch::On(Period::from_secs(2)),
            hedge: HedgeConfig::default(),
        }
    }
}

impl Config {
    /// The names of the classes, the last of which takes what no other does.
    pub fn class_names(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|class| class.name.as_str()).chain([OTHER_CLASS])
    }

    /// What the queue is told.
    #[must_use]
    pub fn queue(&self) -> QueueSettings {
        let class = |class: &DispatchClass| QueueClass {
            name: class.name.as_str().into(),
            weight: class.weight,
            is_background: class.background.is_on(),
        };
        let other = QueueClass { name: OTHER_CLASS.into(), weight: 1, is_background: false };
        QueueSettings {
            order: match self.order {
                DispatchOrder::Due => QueueOrder::Due,
                DispatchOrder::Fifo => QueueOrder::Fifo,
            },
            patience: self.patience.get(),
            classes: self.classes.iter().map(class).chain([other]).collect(),
            max_waiting: self.max_waiting,
            max_wait_ns: self.max_wait.as_nanos(),
            rejects: self.reject == DispatchRefusal::Late,
            hedge: self.hedge.settings(),
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] = &[("classes", Form::List(&CLASS))];

    fn check(&self, checks: &mut Checks) {
        checks.range("patience", &self.patience, Ratio::of_hundredths(0)..=Ratio::of_hundredths(10_000));
        checks.switch_range("budget", &self.budget, Period::from_millis(1)..=Period::from_secs(3_600));
        checks.range("max_waiting", &self.max_waiting, 1..=65_536);
        checks.range("max_wait", &self.max_wait, Period::from_millis(1)..=Period::from_secs(3_600));
        checks.switch_range("recheck", &self.recheck, Period::from_millis(100)..=Period::from_secs(30));
        checks.section("hedge", |checks| self.hedge.check(checks));
        if self.classes.len() > MAX_CLASSES {
            checks.fault("classes", self.classes.len(), format!("must be at most {MAX_CLASSES}"));
        }
        for (at, class) in self.classes.iter().enumerate() {
            let key = format!("classes[{at}]");
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            let name = &class.name;
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name) {
                let reason = format!("is no name: give 1 to {MAX_NAME_BYTES} letters, digits, -, _ and .");
                checks.fault(&format!("{key}.name"), name, reason);
            } else if name == OTHER_CLASS || self.classes[..at].iter().any(|other| other.name == *name) {
                checks.fault(&format!("{key}.name"), name, "is that of another class: take another");
            }
            checks.range(&format!("{key}.weight"), &class.weight, 1..=1_000);
            check_match(&format!("{key}.match"), &class.matches, checks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_class_are_its_fields() {
        CLASS.assert_describes::<DispatchClass>();
    }

    #[test]
    fn each_fault_names_its_key_and_what_to_do() {
        let faults = |config: serde_json::Value| {
            let mut checks = Checks::default();
            serde_json::from_value::<Config>(config).unwrap().check(&mut checks);
            checks.into_faults().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let whole = serde_json::json!({"mode": "on", "slots": 2, "classes": [
            {"name": "gold", "match": {"header": "x-tier: gold"}, "weight": 4},
            {"name": "large", "match": {"class": "256.."}, "background": "on"},
        ]});
        assert_eq!(faults(whole), Vec::<String>::new());
        for (config, says) in [
            (serde_json::json!({"patience": 200}), "patience: 200: must be between 0 and 100"),
            (serde_json::json!({"max_waiting": 0}), "max_waiting: 0: must be between 1 and 65536"),
            (serde_json::json!({"hedge": {"quantile": "20%"}}), "hedge.quantile: 20%: must be between 50% and 100%"),
            (serde_json::json!({"hedge": {"budget": "60%"}}), "hedge.budget: 60%: must be between 0% and 50%"),
            (serde_json::json!({"hedge": {"burst": 0}}), "hedge.burst: 0: must be between 1 and 1000"),
            (serde_json::json!({"recheck": "1m"}), "recheck: 1m: must be between 100ms and 30s"),
            (serde_json::json!({"classes": [{"match": {"model": "m"}}]}), "classes[0].name: is no name"),
            (serde_json::json!({"classes": [{"name": "other", "match": {"model": "m"}}]}), "is that of another class"),
            (
                serde_json::json!({"classes": [{"name": "a"}]}),
                "classes[0].match: needs at least one of route, model, class, header",
            ),
            (
                serde_json::json!({"classes": [{"name": "a", "match": {"model": "m"}, "weight": 0}]}),
                "classes[0].weight: 0: must be",
            ),
        ] {
            let faults = faults(config);
            assert!(faults.len() == 1 && faults[0].contains(says), "{faults:?}");
        }
    }
}
