//! The model servers of the configuration as the process has them: where each is reached, what is known of it, under which label its
//! exchanges are counted, and what it reports of itself.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Loaded};
use lapwing_admin::UpstreamState;
use lapwing_attribution::{Poller, Rules, Statistics};
use lapwing_ledger::LabelId;
use lapwing_metrics::{Counters, Labels};
use lapwing_net::{ClientIdentity, Target};
use lapwing_proxy::{Levers, PlacedUpstream, PoolMember, TrafficSplit, UpstreamHealth, UpstreamProtocol, Upstreams};
use lapwing_settings::{ConfigHandle, HttpScheme, Upstream};
use lapwing_shadow::NamedTarget;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct RunningUpstream {
    /// Its name, or its URL if it is the only one.
    name: String,
    url: Upstream,
    target: Target,
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
}

impl RunningUpstreams {
    /// Those of `config`. Over TLS, they have to prove themselves to `identity`; a trial may turn `levers`.
    pub(crate) fn of(config: &Config, labels: &Labels, identity: &Arc<ClientIdentity>, levers: &Levers) -> Self {
        let running = |name: String, url: &Upstream, health: UpstreamHealth| RunningUpstream {
            label: labels.upstreams.intern(&name),
            name,
            url: url.clone(),
            target: Target::of(url, identity),
            health: Arc::new(health),
            statistics: Arc::default(),
        };
        let several: Vec<_> = config
            .upstreams
            .iter()
            .map(|(name, one)| (running(name.clone(), &one.url, UpstreamHealth::of_several()), one.weight))
            .collect();
        let split = several.iter().find(|(one, _)| config.split.is_on() && one.name == config.split.candidate);
        let split = split.map(|(one, _)| (Arc::new(TrafficSplit::new(&one.name, config.split.key.clone())), one.label));
        let members = several.iter().map(|(one, weight)| PoolMember {
            upstream: one.placed(),
            name: one.name.clone(),
            label: one.label,
            weight: *weight,
        });
        let divided = split.as_ref().map(|(traffic, _)| traffic.clone());
        let (members, lever) = (members.collect(), &levers.least_requests);
        if let Some(placed) = Upstreams::several(members, &config.routes, config.upstream_policy, divided, lever) {
            let list = several.into_iter().map(|(one, _)| one).collect();
            // refused before they were sent anywhere, they belong to none of them
            return Self { list, placed, split, unplaced: labels.upstreams.intern("") };
        }
        let only = running(config.upstream.to_string(), &config.upstream, UpstreamHealth::default());
        Self { placed: Upstreams::one(only.placed()), split: None, unplaced: only.label, list: [only].into() }
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
        let state = |(one, in_flight): (&RunningUpstream, u32)| UpstreamState {
            name: one.name.clone(),
            url: one.url.to_string(),
            up: !one.health.is_away(),
            in_flight,
        };
        self.list.iter().zip(self.placed.active()).map(state).collect()
    }
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
