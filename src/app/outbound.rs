//! The listeners of `downstreams`: what the model server connects to instead of its store.

use std::sync::Arc;

use super::identities::Identities;
use super::listening::bind;
use super::start_error::StartError;
use crate::config::Config;
use lapwing_metrics::Counters;
use lapwing_net::{BoundListener, ClientIdentity, Speaks, Target, TlsTo};
use lapwing_outbound::{DownstreamKind, LISTEN_KEYS, OutboundListener};
use lapwing_settings::DownstreamAddress;

/// Binds them, in the order of the list.
pub(crate) fn listeners(
    config: &Config,
    identities: &Identities,
    counters: &Arc<Counters>,
) -> Result<Vec<OutboundListener>, StartError> {
    let hint = " (the server's own client connects there: choose another address)";
    let listener =
        |((one, key), (client, server)): ((&lapwing_outbound::Downstream, &'static str), &(Arc<ClientIdentity>, _))| {
            let listener =
                BoundListener::from(bind(key, one.listen, hint)?).over_tls(Option::as_ref(server), speaks(one.kind), counters);
            Ok(OutboundListener { listener, target: target(&one.to, client) })
        };
    config.downstreams.iter().zip(LISTEN_KEYS).zip(&identities.downstreams).map(listener).collect()
}

/// What is offered to a client of a listener with TLS that asks.
const fn speaks(kind: DownstreamKind) -> Speaks {
    if matches!(kind, DownstreamKind::Grpc) { Speaks::Both } else { Speaks::Http1 }
}

/// The address of a downstream; over TLS, it has to prove itself to `identity`.
pub(crate) fn target(address: &DownstreamAddress, identity: &Arc<ClientIdentity>) -> Target {
    match address {
        DownstreamAddress::Tcp { authority, scheme } if scheme.is_tls() => {
            Target::Tls(authority.clone(), TlsTo(identity.clone()))
        }
        DownstreamAddress::Tcp { authority, .. } => Target::Tcp(authority.clone()),
        DownstreamAddress::Unix { path } => Target::Unix(path.clone()),
    }
}
