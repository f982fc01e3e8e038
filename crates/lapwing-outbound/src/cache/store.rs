//! What is kept of one downstream, by its kind.

use parking_lot::Mutex;

use super::figures::KeptFigures;
use super::kept::KeptReplies;
use super::kept_http::KeptAnswers;
use crate::cache_config::{DownstreamCache, DownstreamCacheMode};
use crate::kind::DownstreamKind;

/// What is kept of one downstream. All its connections share it.
#[derive(Debug)]
pub(crate) enum StoreCache {
    Redis(Mutex<KeptReplies>),
    Http(Mutex<KeptAnswers>),
}

/// What is known of it.
pub(crate) struct KeptLook<'k> {
    pub(crate) mode: DownstreamCacheMode,
    pub(crate) figures: &'k KeptFigures,
    /// By their places.
    pub(crate) rules: Vec<String>,
    /// How many answers are kept, and the bytes that they cost.
    pub(crate) size: (u64, u64),
}

impl StoreCache {
    /// That of a downstream with this section; `None` if nothing is kept.
    pub(crate) fn of(kind: DownstreamKind, config: &DownstreamCache) -> Option<Self> {
        if config.mode == DownstreamCacheMode::Off {
            return None;
        }
        match kind {
            DownstreamKind::Redis => Some(Self::Redis(Mutex::new(KeptReplies::new(config)))),
            DownstreamKind::Http => Some(Self::Http(Mutex::new(KeptAnswers::new(config, rand::random())))),
            DownstreamKind::Grpc => None,
        }
    }

    /// Shows what is known of it.
    pub(crate) fn look<T>(&self, show: impl FnOnce(KeptLook<'_>) -> T) -> T {
        match self {
            Self::Redis(kept) => {
                let kept = kept.lock();
                show(KeptLook { mode: kept.mode, figures: &kept.figures, rules: kept.rules().collect(), size: kept.size() })
            }
            Self::Http(kept) => {
                let kept = kept.lock();
                show(KeptLook { mode: kept.mode, figures: &kept.figures, rules: kept.rules().collect(), size: kept.size() })
            }
        }
    }
}
