//! A bounded client of a Redis that pods share.
//!
//! A Redis that is dead, slow, full or restarting must not be felt by requests. So a read never waits past its deadline; a [`RedisClient`]
//! that failed too often is not waited for at all (`breaker`); connections are made, probed and replaced in the background
//! ([`RedisKeeper`]), never on the way of a request; and writes wait in a bounded queue (`queue`) that drops what does not fit. There is
//! one multiplexed connection, or one for each node of a cluster (`connect`): answers come in order, so a read waits for what was asked
//! before it. Writes are therefore sent in small batches.
//!
//! Masters are read, never replicas: what is purged on a master is still on its replicas for a while.
//!
//! The user needs the commands that are sent (`MGET`, and `SET` for what is written) on the keys that are used, and in a cluster
//! `CLUSTER SLOTS`.
//!
//! ```
//! use lapwing_redis::{QueueBounds, RedisClient, RedisConfig, RedisRefusal};
//!
//! let config: RedisConfig = serde_json::from_str(r#"{"url": "redis://127.0.0.1:6379"}"#).unwrap();
//! let bounds = QueueBounds { entries: 16, bytes: 1 << 20 };
//! let (client, keeper) = RedisClient::new("cache.redis", config.target().unwrap(), bounds, b"lapwing:".to_vec()).unwrap();
//! drop(keeper); // to be spawned
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! let answer = runtime.block_on(client.get(&["lapwing:a"], config.deadline.of(None)));
//! assert_eq!(answer, Err(RedisRefusal::Away), "nobody waits for a connection");
//! ```

#![forbid(unsafe_code)]

mod backoff;
mod breaker;
mod client;
mod config;
mod connect;
mod counts;
mod error;
mod keeper;
mod queue;
mod shared;
mod target;

pub use client::RedisClient;
pub use config::{RedisConfig, WriteQueueConfig};
pub use counts::RedisCounts;
pub use error::RedisRefusal;
pub use keeper::RedisKeeper;
pub use queue::{QueueBounds, RedisWrite};
/// A command, commands that are sent together, and an answer.
pub use redis::{Cmd as RedisCommand, Pipeline as RedisPipeline, Value as RedisValue};
pub use target::{RedisTarget, shared_secret};
