//! The stores that rules read: for each rule one client, which asks once and never waits past the deadline.

use std::future::pending;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::time::timeout;

use crate::config::{HydrateRule, HydrateStore, StoreKind};
use crate::hydration::Hydration;
use crate::lookup::{HydrateAnswer, HydrateQuestion};
use crate::refused::HydrateRefused;
use lapwing_net::{Client, ClientError, ClientLimits, Target};
use lapwing_redis::{QueueBounds, RedisClient, RedisCommand, RedisKeeper, RedisPipeline, RedisRefusal, RedisValue};
use lapwing_settings::{Fault, FeatureStoreAddress};

/// Nothing is written to stores.
const NO_WRITES: QueueBounds = QueueBounds { entries: 1, bytes: 1 };
/// The largest answer of a feature server.
const MAX_ANSWER: usize = 8 << 20;

/// A client of each rule's store, in the order of the rules.
#[derive(Debug)]
pub(crate) struct HydrateStores(Vec<StoreClient>);

#[derive(Debug)]
enum StoreClient {
    Redis(RedisClient),
    Feast(Box<Client>),
    /// It cannot be reached: a file cannot be read.
    Unusable(Fault),
}

/// Keeps the connections to stores.
#[derive(Debug, Default)]
#[must_use = "without it stores have no connection"]
pub struct HydrateKeepers(Vec<RedisKeeper>);

impl HydrateKeepers {
    /// Runs until it is dropped, on the runtime that asks.
    pub async fn run(self) {
        join_all(self.0.into_iter().map(RedisKeeper::run)).await;
        pending().await
    }
}

impl HydrateStores {
    /// Those of rules that have been checked, and what keeps their connections.
    pub(crate) fn new(rules: &[HydrateRule]) -> (Self, HydrateKeepers) {
        let (mut stores, mut keepers) = (Vec::with_capacity(rules.len()), Vec::new());
        for (at, rule) in rules.iter().enumerate() {
            stores.push(match (&rule.store.url, rule.store.redis()) {
                (_, Some(target)) => {
                    let section = format!("hydrate[{at}].store");
                    match RedisClient::new(&section, target, NO_WRITES, probe(&rule.store)) {
                        Ok((client, keeper)) => {
                            keepers.push(keeper);
                            StoreClient::Redis(client)
                        }
                        Err(fault) => StoreClient::Unusable(fault),
                    }
                }
                (FeatureStoreAddress::Http(authority), _) => {
                    let deadline = rule.deadline.get();
                    let limits = ClientLimits {
                        connect_timeout: deadline,
                        timeout: deadline,
                        max_body: MAX_ANSWER,
                        ..ClientLimits::default()
                    };
                    StoreClient::Feast(Box::new(Client::new(Target::Tcp(authority.clone()), limits)))
                }
                (FeatureStoreAddress::Redis(_), None) => continue,
            });
        }
        (Self(stores), HydrateKeepers(keepers))
    }

    /// Why some cannot be reached.
    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.0.into_iter().filter_map(|store| if let StoreClient::Unusable(fault) = store { Some(fault) } else { None }).collect()
    }

    /// Asks the store of the rule at this place, `hydration`. It returns by the rule's deadline.
    ///
    /// # Errors
    ///
    /// If the store cannot be asked, or does not answer in time.
    pub(crate) async fn ask(
        &self,
        at: usize,
        hydration: &Hydration,
        question: HydrateQuestion,
    ) -> Result<HydrateAnswer, HydrateRefused> {
        let deadline = hydration.deadline();
        match (self.0.get(at), question) {
            (Some(StoreClient::Redis(client)), HydrateQuestion::Redis(commands)) => {
                let mut pipeline = RedisPipeline::with_capacity(commands.len());
                for words in &commands {
                    let mut command = RedisCommand::new();
                    words.iter().fold(&mut command, |command, word| command.arg(word));
                    pipeline.add_command(command);
                }
                let values = client.run(&pipeline, deadline).await.map_err(|refusal| match refusal {
                    RedisRefusal::Late => HydrateRefused::Late(deadline),
                    other => HydrateRefused::Failed(other.to_string()),
                })?;
                values.into_iter().map(list_of).collect::<Result<_, _>>().map(HydrateAnswer::Redis)
            }
            (Some(StoreClient::Feast(client)), HydrateQuestion::Feast(body)) => {
                timeout(deadline, ask_feast(client, body)).await.unwrap_or(Err(HydrateRefused::Late(deadline)))
            }
            (Some(StoreClient::Unusable(fault)), _) => Err(HydrateRefused::Failed(fault.reason.clone())),
            // a store is asked in its own words only
            _ => Err(HydrateRefused::Failed("it is another store".to_owned())),
        }
    }
}

/// A key that the user may read: it only has to be of the kind.
fn probe(store: &HydrateStore) -> Vec<u8> {
    let text = match store.kind {
        StoreKind::Redis => store.key.as_deref().and_then(|key| key.split('{').next()),
        StoreKind::Feast => store.project.as_deref(),
    };
    text.filter(|text| !text.is_empty()).unwrap_or("lapwing").as_bytes().to_vec()
}

/// The values that a command was answered with.
fn list_of(value: RedisValue) -> Result<Vec<Option<Bytes>>, HydrateRefused> {
    let one = |value| match value {
        RedisValue::BulkString(bytes) => Ok(Some(Bytes::from(bytes))),
        RedisValue::Nil => Ok(None),
        other => Err(unexpected(&other)),
    };
    match value {
        RedisValue::Array(values) => values.into_iter().map(one).collect(),
        other => Err(unexpected(&other)),
    }
}

/// Names no key and no value: the text of a server's error may.
fn unexpected(value: &RedisValue) -> HydrateRefused {
    HydrateRefused::Failed(match value {
        RedisValue::ServerError(error) => format!("redis answers {}", error.code()),
        _ => "redis answers in another form".to_owned(),
    })
}

async fn ask_feast(client: &Client, body: Vec<u8>) -> Result<HydrateAnswer, HydrateRefused> {
    let failed = |cause: String| HydrateRefused::Failed(cause);
    let request = Request::post("/get-online-features")
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json")
        .body(Full::from(body))
        .map_err(|error| failed(error.to_string()))?;
    let response = client.fetch(request).await.map_err(|error| match error {
        ClientError::Timeout(limit) => HydrateRefused::Late(limit),
        other => failed(lapwing_net::error_text(&other)),
    })?;
    match response.status() {
        StatusCode::OK => Ok(HydrateAnswer::Feast(response.into_body())),
        status => Err(failed(format!("the feature server answers {status}"))),
    }
}
