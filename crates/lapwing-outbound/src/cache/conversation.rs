//! One connection, by the kind of its downstream: what of it is answered from memory, and what passes.

use super::http::HttpConversation;
use super::redis::RedisConversation;
use super::store::StoreCache;
use super::turn::{Outgoing, Turn};
use crate::kind::DownstreamKind;
use lapwing_ledger::Stamp;

/// One connection.
#[derive(Debug)]
pub(crate) enum Conversation {
    Redis(Box<RedisConversation>),
    Http(Box<HttpConversation>),
}

impl Conversation {
    pub(crate) fn of(kind: DownstreamKind) -> Self {
        match kind {
            DownstreamKind::Redis => Self::Redis(Box::default()),
            // nothing is kept of gRPC
            DownstreamKind::Http | DownstreamKind::Grpc => Self::Http(Box::default()),
        }
    }

    /// What came from the client: what of it goes to the store, and what is answered.
    pub(crate) fn client(&mut self, bytes: &[u8], turn: Turn, of: Option<&StoreCache>, out: &mut Outgoing) {
        match (self, of) {
            (Self::Redis(redis), Some(StoreCache::Redis(kept))) => redis.client(bytes, turn, &mut kept.lock(), out),
            (Self::Http(http), Some(StoreCache::Http(kept))) => http.client(bytes, turn, &mut kept.lock(), out),
            _ => out.to_store.extend_from_slice(bytes),
        }
    }

    /// What came from the store, before it is handed on.
    pub(crate) fn server(&mut self, bytes: &[u8], now: Stamp, of: Option<&StoreCache>) {
        match (self, of) {
            (Self::Redis(redis), Some(StoreCache::Redis(kept))) => redis.server(bytes, now, &mut kept.lock()),
            (Self::Http(http), Some(StoreCache::Http(kept))) => http.server(bytes, now, &mut kept.lock()),
            _ => {}
        }
    }

    /// The client sends nothing more: what is held goes on.
    pub(crate) fn client_ended(&mut self, out: &mut Outgoing) {
        match self {
            Self::Redis(redis) => redis.client_ended(out),
            Self::Http(http) => http.client_ended(out),
        }
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self, now: Stamp, of: Option<&StoreCache>) {
        match (self, of) {
            (Self::Redis(redis), Some(StoreCache::Redis(kept))) => redis.end(now, &mut kept.lock()),
            (Self::Http(http), Some(StoreCache::Http(kept))) => http.end(now, &mut kept.lock()),
            _ => {}
        }
    }
}
