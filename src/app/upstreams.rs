//! The model servers of the configuration as the process has them: where each is reached, what is known of it, under which label its
//! exchanges are counted, and what it reports of itself.

use std::sync::Arc;
use std::time::Duration;

use super::identities::UpstreamIdentities;
use crate::config::{Config, Loaded};
use lapwing_admin::UpstreamState;
use lapwing_attribution::{Poller, Rules, Statistics};
use lapwing_ledger::LabelId;
use lapwing_metrics::{Counters, Labels};
use lapwing_net::{ClientIdentity, Target};
use lapwing_proxy::{
    Levers, PlacedUpstream, PlacementSettings, PoolMember, TrafficSplit, UpstreamHealth, UpstreamProtocol, Upstreams,
};
use lapwing_settings::{ConfigHandle, HttpScheme, Upstream};
use lapwing_shadow::NamedTarget;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct RunningUpstream {
    /// Its name, or its URL if it is the only one.
    name: String,
    url: Upstream,
    target: Target,
    /// Its own, if it has one.
    identity: Option<Arc<ClientIdentity>>,
    health: Arc<UpstreamHealth>,
    label: LabelId,
    statistics: Arc<Statistics>,
}

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct RunningUpstreams {
    list: Arc<[RunningUpstream]>,
    /// As the data plane has them.
    pub(crate) placed: Upstreams,
    /// The live split between them, and the label of its candidate.
    pub(crate) split: Option<(Arc<TrafficSplit>, LabelId)>,
    /// The label of requests that were sent to none so far.
    pub(crate) unplaced: LabelId,
    /// What is in force, whose weights, tags and routes are followed.
    whole: ConfigHandle<Loaded>,
}

impl RunningUpstreams {
    /// Those of the configuration in force. Over TLS, they have to prove themselves to `identities`; a trial may turn `levers`.
    pub(crate) fn of(whole: &ConfigHandle<Loaded>, labels: &Labels, identities: &UpstreamIdentities, levers: &Levers) -> Self {
        let loaded = whole.load();
        let config = &loaded.config;
        let running = |name: String, url: &Upstream, health: UpstreamHealth| RunningUpstream {
            label: labels.upstreams.intern(&name),
            target: Target::of(url, identities.of(&name)),
            identity: identities.own(&name).cloned(),
            name,
            url: url.clone(),
            health: Arc::new(health),
            statistics: Arc::default(),
        };
        let several = config.upstreams.iter();
        let list: Arc<[_]> = several.map(|(name, one)| running(name.clone(), &one.url, UpstreamHealth::of_several())).collect();
        let split = list.iter().find(|one| config.split.is_on() && one.name == config.split.candidate);
        let split = split.map(|one| (Arc::new(TrafficSplit::new(&one.name, config.split.key.clone())), one.label));
        let member = |one: &RunningUpstream| PoolMember { upstream: one.placed(), name: one.name.clone(), label: one.label };
        let divided = split.as_ref().map(|(traffic, _)| traffic.clone());
        let (members, whole) = (list.iter().map(member).collect(), whole.clone());
        if let Some(placed) = Upstreams::several(members, &placement_settings(&whole), divided, &levers.least_requests) {
            // refused before they were sent anywhere, they belong to none of them
            return Self { list, placed, split, unplaced: labels.upstreams.intern(""), whole };
        }
        let only = running(config.upstream.to_string(), &config.upstream, UpstreamHealth::default());
        let placed = Upstreams::one(only.placed());
        Self { placed, split: None, unplaced: only.label, list: [only].into(), whole }
    }

    /// The ports at which they are reached.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.list.iter().filter_map(|one| one.target.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// The one that is asked a second time where noise is measured: the first, or the first that is no candidate.
    pub(crate) fn repeated(&self) -> Option<NamedTarget> {
        let one = self.baseline().or(self.list.first())?;
        Some(NamedTarget::upstream_again((self.list.len() > 1).then_some(one.label), &one.url, one.target.clone()))
    }

    /// Both sides of the live split as targets of copies. Of several that are the baseline, it is the first.
    pub(crate) fn sides_of_split(&self) -> Option<[NamedTarget; 2]> {
        let (_, label) = self.split.as_ref()?;
        let candidate = self.list.iter().find(|one| one.label == *label)?;
        let [candidate, baseline] = [candidate, self.baseline()?].map(|one| (&one.url, one.target.clone()));
        Some(NamedTarget::sides_of_split(*label, candidate, baseline))
    }

    /// The first that is no candidate of a split, if there is one.
    fn baseline(&self) -> Option<&RunningUpstream> {
        let (_, candidate) = self.split.as_ref()?;
        self.list.iter().find(|one| one.label != *candidate)
    }

    /// What each reports of itself, by the label of its exchanges.
    pub(crate) fn statistics(&self) -> Vec<(LabelId, Arc<Statistics>)> {
        self.list.iter().map(|one| (one.label, one.statistics.clone())).collect()
    }

    /// What asks each for its statistics.
    pub(crate) fn pollers(
        &self,
        whole: &ConfigHandle<Loaded>,
        labels: &Arc<Labels>,
        rules: &ConfigHandle<Rules>,
        counters: &Arc<Counters>,
    ) -> impl Iterator<Item = Poller> {
        let poll = whole.load().config.attribution.poll.clone();
        self.list.iter().map(move |one| Poller {
            poll: poll.clone(),
            interval: whole.map(|loaded| loaded.config.attribution.poll_interval.get()),
            upstream: one.url.clone(),
            label: one.label,
            target: one.target.clone(),
            statistics: one.statistics.clone(),
            labels: labels.clone(),
            rules: rules.clone(),
            counters: counters.clone(),
        })
    }

    /// Whether requests can be sent to at least one of them, found out by attempts to connect.
    ///
    /// # Errors
    ///
    /// The reasons why they cannot, for people to read.
    pub(crate) async fn readiness(&self, limit: Duration) -> Result<(), String> {
        let asked = self.list.iter().map(|one| one.health.readiness(&one.target, limit));
        let answers = futures_util::future::join_all(asked).await;
        if answers.iter().any(Result::is_ok) {
            return Ok(());
        }
        Err(answers.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("; "))
    }

    /// What the admin server shows of them.
    pub(crate) fn shown(&self) -> Arc<dyn Fn() -> Vec<UpstreamState> + Send + Sync> {
        let upstreams = self.clone();
        Arc::new(move || upstreams.states())
    }

    /// The state of each, if they are several.
    fn states(&self) -> Vec<UpstreamState> {
        let loaded = self.whole.load();
        let tags = |name: &str| loaded.config.upstreams.get(name).map(|one| one.tags.clone()).unwrap_or_default();
        let state = |(one, in_flight): (&RunningUpstream, u32)| UpstreamState {
            tags: tags(&one.name),
            name: one.name.clone(),
            url: one.url.to_string(),
            up: !one.health.is_away(),
            in_flight,
            certificate_expiry_unix_s: one.identity.as_ref().and_then(|own| own.validity()).map(|validity| validity.until_s),
        };
        self.list.iter().zip(self.placed.active()).map(state).collect()
    }
}

/// What of the configuration decides where requests go.
fn placement_settings(whole: &ConfigHandle<Loaded>) -> ConfigHandle<PlacementSettings> {
    whole.map(|loaded| {
        let Config { upstreams, routes, upstream_policy: policy, dispatch, .. } = loaded.config.clone();
        PlacementSettings { upstreams, routes, policy, spare: dispatch.hedge.spare().map(str::to_owned) }
    })
}

impl RunningUpstream {
    fn placed(&self) -> PlacedUpstream {
        let is_h2c = matches!(self.url, Upstream::Http { scheme: HttpScheme::H2c, .. });
        PlacedUpstream {
            target: self.target.clone(),
            protocol: is_h2c.then_some(UpstreamProtocol::H2),
            health: self.health.clone(),
        }
    }
}
