//! The cache of a process, as a data plane is given it.

use std::sync::Arc;

use crate::cache::Cache;
use crate::config::Config;
use crate::plane::CachePlane;
use crate::shared::{SharedAnswers, SharedKeeper};
use lapwing_settings::{ConfigHandle, Fault, LeverSwitch};

/// The cache of a process, and the settings that it follows.
#[derive(Clone, Debug)]
pub struct Caching {
    plane: Arc<CachePlane>,
    config: ConfigHandle<Config>,
}

impl Caching {
    /// A cache without answers, whose keys are made with this secret.
    ///
    /// `absences` counts how often an upstream was found to be away: who comes back may serve another model.
    #[must_use]
    pub fn new(secret: [u8; 32], absences: impl Fn() -> u64 + Send + Sync + 'static, config: ConfigHandle<Config>) -> Self {
        Self { plane: Arc::new(CachePlane::new(secret, absences)), config }
    }

    /// The same with the Redis of `config`, which processes share, if it names one; and its background, which the caller runs.
    ///
    /// # Errors
    ///
    /// A file of the section that cannot be used.
    pub fn shared_by(&self, config: &Config) -> Result<Option<SharedKeeper>, Fault> {
        let plane = self.plane.clone();
        let forget = move |scope| plane.forget_as(&scope);
        let shared = SharedAnswers::new("cache.redis", &config.redis, config.largest_entry().get(), forget)?;
        Ok(shared.map(|(shared, keeper)| {
            self.plane.share(shared);
            keeper
        }))
    }

    /// What it keeps.
    #[must_use]
    pub const fn plane(&self) -> &Arc<CachePlane> {
        &self.plane
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &ConfigHandle<Config> {
        &self.config
    }

    /// The cache with the settings in force. `lever` may turn it on or off instead.
    #[must_use]
    pub fn in_force(&self, lever: &LeverSwitch) -> ConfigHandle<Cache> {
        let (plane, lever) = (self.plane.clone(), lever.clone());
        self.config.map(move |config| Cache::new(&plane, config, &lever))
    }
}
