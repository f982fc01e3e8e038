//! The section `cache.redis`: which Redis, how long it may take, and what waits to be written to it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::queue::QueueBounds;
use crate::target::RedisTarget;
use lapwing_settings::{Checks, ClientTls, File, Form, Period, RedisAddress, RedisDeadline, Section, Size, Switch};

/// The most further nodes.
const MAX_NODES: usize = 64;
/// The longest prefix: it is in every key.
const MAX_PREFIX: usize = 128;

/// What waits to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct WriteQueueConfig {
    /// How many values may wait. Further ones are not written, which is counted.
    pub entries: usize,
    /// How many bytes they may have.
    pub bytes: Size,
}

impl Default for WriteQueueConfig {
    fn default() -> Self {
        Self { entries: 1_024, bytes: Size::mib(16) }
    }
}

impl WriteQueueConfig {
    /// As bounds.
    #[must_use]
    pub const fn bounds(&self) -> QueueBounds {
        QueueBounds { entries: self.entries, bytes: self.bytes.get() }
    }
}

/// The section `cache.redis`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct RedisConfig {
    /// The Redis that pods share: `redis://`, `rediss://` (TLS) or `unix:/path`. With `sentinel`, a sentinel, and the user and database of
    /// the master. `off`: none.
    pub url: Switch<RedisAddress>,
    /// Further nodes of the cluster, or further sentinels, that are asked while the one of `url` is away.
    pub nodes: Vec<RedisAddress>,
    /// Whether it is a cluster.
    pub cluster: bool,
    /// The name of the master that the sentinels know. `off`: there are no sentinels.
    pub sentinel: Switch<String>,
    /// File with the password of the user in `url`.
    pub password_file: Switch<File>,
    /// File with the password of the sentinels.
    pub sentinel_password_file: Switch<File>,
    /// How TLS is spoken to `rediss://`.
    pub tls: ClientTls,
    /// File with at least 32 bytes, the same for all that share answers: what keys and seals are made with.
    pub secret_file: Switch<File>,
    /// What all keys begin with. Pods share answers if they have the same one; give each revision of a deployment its own.
    pub prefix: String,
    /// How long a request waits for it at most. `auto`: 5 ms, or a fifth of what the model takes.
    pub deadline: RedisDeadline,
    /// What waits to be written.
    pub write_queue: WriteQueueConfig,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: Switch::Off,
            nodes: Vec::new(),
            cluster: false,
            sentinel: Switch::Off,
            password_file: Switch::Off,
            sentinel_password_file: Switch::Off,
            tls: ClientTls::default(),
            secret_file: Switch::Off,
            prefix: "lapwing:".to_owned(),
            deadline: RedisDeadline::Auto,
            write_queue: WriteQueueConfig::default(),
        }
    }
}

impl RedisConfig {
    /// The Redis that it names, if it names one.
    #[must_use]
    pub fn target(&self) -> Option<RedisTarget> {
        Some(RedisTarget {
            url: self.url.on()?.clone(),
            nodes: self.nodes.clone(),
            is_cluster: self.cluster,
            sentinel: self.sentinel.on().cloned(),
            password_file: self.password_file.on().cloned(),
            sentinel_password_file: self.sentinel_password_file.on().cloned(),
            tls: self.tls.clone(),
        })
    }

    fn check_nodes(&self, url: &RedisAddress, checks: &mut Checks) {
        if self.nodes.len() > MAX_NODES {
            checks.fault("nodes", self.nodes.len(), format!("must be at most {MAX_NODES}"));
        }
        if !self.nodes.is_empty() && !self.cluster && !self.sentinel.is_on() {
            checks.fault(
                "nodes",
                self.nodes.len(),
                "are those of a cluster or sentinels: set cluster or sentinel, or leave this out",
            );
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let is_alike = match node {
                RedisAddress::Tcp { is_tls, user: None, db: 0, .. } => *is_tls == url.is_tls(),
                _ => false,
            };
            if !is_alike {
                checks.fault(
                    &format!("nodes[{at}]"),
                    node,
                    "must be host and port with the scheme of url; user and database are in url",
                );
            }
        }
    }

    fn check_kind(&self, url: &RedisAddress, checks: &mut Checks) {
        if self.cluster && self.sentinel.is_on() {
            checks.fault("sentinel", &self.sentinel, "is not with cluster: a cluster elects its masters itself");
        }
        if self.sentinel.on().is_some_and(|name| name.trim().is_empty()) {
            checks.fault("sentinel", &self.sentinel, "must be the name of a master, as in mymaster; or off");
        }
        if (self.cluster || self.sentinel.is_on()) && matches!(url, RedisAddress::Unix { .. }) {
            checks.fault("url", url, "must be over TCP: a cluster and sentinels name their nodes by host and port");
        }
        if self.cluster && matches!(url, RedisAddress::Tcp { db: 1.., .. }) {
            checks.fault("url", url, "must not have a database: a cluster has one");
        }
        if self.sentinel_password_file.is_on() && !self.sentinel.is_on() {
            checks.fault("sentinel_password_file", &self.sentinel_password_file, "needs sentinel");
        }
        if matches!(url, RedisAddress::Tcp { user: Some(_), .. }) && !self.password_file.is_on() {
            checks.fault("password_file", &self.password_file, "is missing: the user in url needs a password");
        }
    }

    fn check_tls(&self, url: &RedisAddress, checks: &mut Checks) {
        if self.tls != ClientTls::default() && !url.is_tls() {
            checks.fault("tls", url, "speaks no TLS: give url the scheme rediss, or leave this out");
        }
        checks.section("tls", |checks| {
            self.tls.check(checks);
            if self.tls.server_name.is_on() {
                checks.fault("server_name", &self.tls.server_name, "is not for Redis: certificates must have the host of url");
            }
        });
    }
}

impl Section for RedisConfig {
    const FORMS: &'static [(&'static str, Form)] = &[("nodes", Form::Texts)];

    fn check(&self, checks: &mut Checks) {
        checks.optional_range("deadline", self.deadline.after(), Period::from_millis(1)..=Period::from_secs(1));
        checks.section("write_queue", |checks| {
            checks.range("entries", &self.write_queue.entries, 1..=65_536);
            checks.range("bytes", &self.write_queue.bytes, Size::kib(64)..=Size::mib(1_024));
        });
        // braces would say which part of a key chooses its node in a cluster
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b'*' | b'?' | b'[' | b']' | b'\\');
        if self.prefix.is_empty() || self.prefix.len() > MAX_PREFIX || !self.prefix.bytes().all(is_plain) {
            let reason = format!("must be 1 to {MAX_PREFIX} visible ASCII characters without {{ }} * ? [ ] \\");
            checks.fault("prefix", &self.prefix, reason);
        }
        let Switch::On(url) = &self.url else { return };
        self.check_kind(url, checks);
        self.check_nodes(url, checks);
        self.check_tls(url, checks);
        if !self.secret_file.is_on() {
            let reason = "is missing: what pods share is keyed and sealed with a secret that all of them have; give a file of at least 32 \
                          bytes, as head -c 32 /dev/urandom makes it";
            checks.fault("secret_file", &self.secret_file, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(config: serde_json::Value) -> RedisConfig {
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn each_fault_names_its_key_and_what_to_do() {
        let faults = |value: serde_json::Value| {
            let mut checks = Checks::default();
            config(value).check(&mut checks);
            checks.into_faults().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let with = |more: serde_json::Value| {
            let mut whole = serde_json::json!({"url": "redis://r", "secret_file": "/s"});
            whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            whole
        };
        assert_eq!(faults(serde_json::json!({})), Vec::<String>::new());
        assert_eq!(faults(with(serde_json::json!({}))), Vec::<String>::new());
        let sentinel = serde_json::json!({"url": "rediss://u@s:26379/2", "nodes": ["rediss://t:26379"], "sentinel": "mymaster",
            "password_file": "/p", "tls": {"ca": "/ca"}, "prefix": "team:r1:", "deadline": "2ms"});
        assert_eq!(faults(with(sentinel)), Vec::<String>::new());
        for (value, says) in [
            (serde_json::json!({"secret_file": "off"}), "secret_file: off: is missing: what pods share"),
            (serde_json::json!({"cluster": true, "sentinel": "m"}), "sentinel: m: is not with cluster"),
            (serde_json::json!({"sentinel": " "}), "sentinel:  : must be the name of a master"),
            (serde_json::json!({"cluster": true, "url": "unix:/r"}), "url: unix:/r: must be over TCP"),
            (serde_json::json!({"cluster": true, "url": "redis://r/1"}), "url: redis://r:6379/1: must not have a database"),
            (serde_json::json!({"nodes": ["redis://s"]}), "nodes: 1: are those of a cluster or sentinels"),
            (serde_json::json!({"cluster": true, "nodes": ["rediss://s"]}), "nodes[0]: rediss://s:6379: must be host and port"),
            (serde_json::json!({"url": "redis://u@r"}), "password_file: off: is missing"),
            (serde_json::json!({"sentinel_password_file": "/p"}), "sentinel_password_file: /p: needs sentinel"),
            (serde_json::json!({"tls": {"ca": "/ca"}}), "tls: redis://r:6379: speaks no TLS"),
            (serde_json::json!({"url": "rediss://r", "tls": {"server_name": "x"}}), "tls.server_name: x: is not for Redis"),
            (serde_json::json!({"url": "rediss://r", "tls": {"key": "/k"}}), "tls.certificate: off: is missing"),
            (serde_json::json!({"prefix": ""}), "prefix: must be 1 to 128"),
            (serde_json::json!({"prefix": "a{b}"}), "prefix: a{b}: must be 1 to 128"),
            (serde_json::json!({"deadline": "2s"}), "deadline: 2s: must be between 1ms and 1s"),
            (serde_json::json!({"write_queue": {"entries": 0}}), "write_queue.entries: 0: must be between 1 and 65536"),
            (serde_json::json!({"write_queue": {"bytes": "1KiB"}}), "write_queue.bytes: 1KiB: must be between 64KiB and 1GiB"),
        ] {
            let faults = faults(with(value));
            assert!(faults.iter().any(|fault| fault.contains(says)), "{says}: {faults:?}");
        }
    }

    #[test]
    fn there_is_a_schema_of_every_key() {
        let schema = serde_json::to_value(schemars::schema_for!(RedisConfig)).unwrap();
        let mut keys: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        let mut fields = lapwing_settings::fields_of::<RedisConfig>();
        keys.sort_unstable();
        fields.sort_unstable();
        assert_eq!(keys, fields);
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_shown() {
        let error =
            serde_json::from_value::<RedisConfig>(serde_json::json!({"url": "redis://u:hunter2@r"})).unwrap_err().to_string();
        assert!(error.contains("password_file") && !error.contains("hunter2"), "{error}");
    }
}
