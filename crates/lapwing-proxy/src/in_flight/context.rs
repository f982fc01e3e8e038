//! What the requests of a connection share: the settings in force when they began, and who measures and observes them; and what those
//! of a worker share with what carries them.

use std::sync::Arc;

use super::observer::FencedObserver;
use crate::config::Config;
use crate::connection::ClientTimeouts;
use crate::health::UpstreamHealth;
use crate::hold;
use crate::upload::UploadPlaces;
use lapwing_hydrate::Hydrator;
use lapwing_metrics::Counters;
use lapwing_net::Tasks;
use lapwing_settings::{EvenDraw, LeverSwitch};

/// What the accounts of a connection's requests share: the settings in force when they began, the counters, and the observer.
pub(crate) struct RequestContext {
    pub(crate) config: Config,
    /// The bounds of held requests.
    pub(crate) hold: hold::Config,
    /// Whether responses carry `Server-Timing`.
    pub(crate) respond_server_timing: bool,
    pub(crate) counters: Arc<Counters>,
    /// Which split writes are left without help.
    pub(crate) unhelped: EvenDraw,
    /// May turn `config.quick_ack` on or off instead.
    pub(crate) quick_ack: LeverSwitch,
    pub(crate) observer: FencedObserver,
}

impl std::fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestContext").finish_non_exhaustive()
    }
}

impl RequestContext {
    /// Whether heads are acknowledged at once when their body is still to come.
    pub(crate) fn acknowledges_heads(&self) -> bool {
        self.quick_ack.is_on(self.config.quick_ack.is_on())
    }

    /// How long a client's connection may stand still.
    pub(crate) fn client_timeouts(&self) -> ClientTimeouts {
        ClientTimeouts {
            head: self.config.client_header_timeout.get(),
            idle: self.config.client_idle_timeout.get(),
            write: self.config.client_stall_timeout.get(),
        }
    }
}

/// What the requests of a worker share with what carries them. No account knows it.
#[derive(Debug, Default)]
pub(crate) struct WorkerParts {
    /// The slow uploads of this worker.
    pub(crate) uploads: Arc<UploadPlaces>,
    /// Carry what outlives its request.
    pub(crate) tasks: Tasks,
    /// Looks up features, if any are.
    pub(crate) hydrator: Option<Arc<Hydrator>>,
    /// What is known of the upstream.
    pub(crate) health: Arc<UpstreamHealth>,
}
