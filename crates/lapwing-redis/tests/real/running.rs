//! A client whose background runs, and what a test waits for.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lapwing_redis::{QueueBounds, RedisClient, RedisConfig, RedisWrite};
use tokio::task::JoinSet;

pub(crate) const DEADLINE: Duration = Duration::from_millis(50);
/// How long a test waits for what happens in the background.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client whose background runs as long as this is there.
pub(crate) struct Running {
    pub(crate) client: RedisClient,
    _background: JoinSet<()>,
}

/// A client of the Redis that `config` names.
pub(crate) fn client(config: serde_json::Value) -> Running {
    let config: RedisConfig = serde_json::from_value(config).unwrap();
    let bounds = QueueBounds { entries: 8, bytes: 1 << 20 };
    let (client, keeper) = RedisClient::new("cache.redis", config.target().unwrap(), bounds, b"lapwing:probe".to_vec()).unwrap();
    let mut background = JoinSet::new();
    background.spawn(keeper.run());
    Running { client, _background: background }
}

impl Running {
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&RedisClient) -> bool) {
        let since = Instant::now();
        while !is_so(&self.client) {
            assert!(since.elapsed() < PATIENCE, "{what}: {:?}", self.client.counts());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn until_up(&self) {
        self.until("is not connected", |client| client.counts().is_up).await;
    }

    /// Writes, and waits until it is written.
    pub(crate) async fn write(&self, key: &str, value: &str) {
        let before = self.client.counts().written;
        assert!(self.client.write_behind(write(key, value)));
        self.until("is not written", |client| client.counts().written > before).await;
    }

    pub(crate) async fn read(&self, key: &str) -> Option<String> {
        let values = self.client.get(&[key], DEADLINE).await.unwrap();
        values[0].as_ref().map(|value| String::from_utf8(value.to_vec()).unwrap())
    }
}

pub(crate) fn write(key: &str, value: &str) -> RedisWrite {
    let kept = Duration::from_secs(60);
    let made = Bytes::from(value.to_owned());
    RedisWrite { key: key.into(), bytes: value.len() as u64, make: Box::new(move || Some((made, kept))) }
}
