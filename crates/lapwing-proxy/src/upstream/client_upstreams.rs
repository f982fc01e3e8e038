//! The upstreams as one client's connection sees them: one, or several, of which each request was placed at one. A request whose
//! upstream takes no connection goes to another one of them. What chooses is replaced with the settings; the connection's streams stay.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Version};

use super::context::UpstreamContext;
use super::h2_pool::H2Client;
use crate::error::Error;
use crate::health::Route;
use crate::in_flight::RequestAccount;
use crate::placement::{Placed, Placement};
use lapwing_dispatch::{Dispatch, SecondTurn};

/// One upstream, and this client's streams to it.
#[derive(Clone, Debug)]
pub(crate) struct ClientUpstream {
    pub(crate) context: Arc<UpstreamContext>,
    pub(crate) h2: Arc<H2Client>,
}

/// All of them, as the connection keeps them.
#[derive(Debug)]
pub(crate) struct ConnectionUpstreams {
    first: ClientUpstream,
    /// If requests are placed.
    all: Option<Arc<[ClientUpstream]>>,
}

impl ConnectionUpstreams {
    /// For one client's connection, those of the worker; `is_placed` if requests are placed at one of them.
    pub(crate) fn new((first, others): (&Arc<UpstreamContext>, &[Arc<UpstreamContext>]), is_placed: bool) -> Self {
        let of = |context: &Arc<UpstreamContext>| ClientUpstream { context: context.clone(), h2: Arc::default() };
        let first = of(first);
        let all = || std::iter::once(first.clone()).chain(others.iter().map(of)).collect();
        let all = is_placed.then(all);
        Self { first, all }
    }

    /// The same for its requests, for which `placement` chooses, if they are placed, and `dispatch`, if they may wait.
    pub(crate) fn placed_by(&self, placement: Option<Arc<Placement>>, dispatch: Option<Arc<Dispatch>>) -> ClientUpstreams {
        let several = self.all.clone().zip(placement).map(|(members, placement)| Arc::new(Several { members, placement }));
        ClientUpstreams { first: self.first.clone(), several, dispatch }
    }
}

/// All of them, and what chooses for requests that begin while some settings are in force.
#[derive(Clone, Debug)]
pub(crate) struct ClientUpstreams {
    first: ClientUpstream,
    several: Option<Arc<Several>>,
    dispatch: Option<Arc<Dispatch>>,
}

#[derive(Debug)]
struct Several {
    members: Arc<[ClientUpstream]>,
    placement: Arc<Placement>,
}

impl ClientUpstreams {
    /// What chooses between them, if they are several.
    pub(crate) fn placement(&self) -> Option<&Arc<Placement>> {
        self.several.as_ref().map(|several| &several.placement)
    }

    /// Where requests wait, if they may.
    pub(crate) const fn dispatch(&self) -> Option<&Arc<Dispatch>> {
        self.dispatch.as_ref()
    }

    /// The upstream that `request` was placed at.
    pub(crate) fn of<B>(&self, request: &Request<B>) -> &ClientUpstream {
        let placed = || {
            let several = self.several.as_ref()?;
            several.members.get(request.extensions().get::<Placed>()?.at)
        };
        placed().unwrap_or(&self.first)
    }

    /// The upstream at a place.
    pub(crate) fn at(&self, place: usize) -> Option<&ClientUpstream> {
        self.several.as_ref()?.members.get(place)
    }

    /// The place of one of them.
    pub(crate) fn place_of(&self, one: &ClientUpstream) -> Option<usize> {
        let is_same = |member: &ClientUpstream| Arc::ptr_eq(&member.context, &one.context);
        self.several.as_ref()?.members.iter().position(is_same)
    }

    /// When `request` may be sent to a second one, if it may.
    pub(crate) fn second_turn<B>(&self, request: &mut Request<B>) -> Option<SecondTurn> {
        self.dispatch.as_ref().filter(|dispatch| dispatch.may_hedge())?;
        request.extensions_mut().remove()
    }

    /// Whether a call may be sent twice.
    pub(crate) fn may_repeat<B>(&self, head: &Request<B>, body: &[Bytes]) -> bool {
        self.dispatch.as_ref().is_some_and(|dispatch| dispatch.may_repeat(head, body))
    }

    /// Where `request` was placed.
    pub(crate) fn placed<B>(request: &Request<B>) -> Option<Placed> {
        request.extensions().get().copied()
    }

    /// A second one, at this place, answered the request of `account`, which was placed so, before the one of `first`.
    pub(crate) fn answered_by(&self, at: usize, placed: Option<Placed>, first: &RequestAccount, account: &RequestAccount) {
        if let Some((several, placed)) = self.several.as_ref().zip(placed) {
            several.placement.answered_by(at, (placed, first), account);
        }
    }

    /// Where `request` can go if the upstream that it was placed at takes no connection.
    pub(crate) fn elsewhere<B>(&self, request: &mut Request<B>) -> Option<Box<Elsewhere>> {
        let several = self.several.clone()?;
        let placed = request.extensions_mut().remove::<Placed>()?;
        Some(Box::new(Elsewhere { several, placed }))
    }
}

/// Where a request can go if its upstream takes no connection.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    several: Arc<Several>,
    placed: Placed,
}

impl Elsewhere {
    /// Another upstream for a request that failed with `error` before a byte of it was written, of those that `can` take it over the route
    /// on which a request of `version` goes to them.
    pub(crate) fn after(
        self,
        error: &Error,
        account: &RequestAccount,
        version: Version,
        can: impl Fn(Route) -> bool,
    ) -> Option<(ClientUpstream, Route)> {
        if !matches!(error, Error::Connect { .. } | Error::ConnectTimeout { .. }) {
            return None;
        }
        let Several { members, placement } = &*self.several;
        let route = |at: usize| {
            let context = &members.get(at)?.context;
            Some(context.health.spoken.route(context.protocol(account), version))
        };
        let again = placement.place_again(self.placed, account, |at| route(at).is_some_and(&can))?;
        Some((members.get(again.at)?.clone(), route(again.at)?))
    }
}
