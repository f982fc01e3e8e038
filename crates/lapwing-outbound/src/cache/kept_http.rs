//! The answers of an HTTP store that are kept. Which may be, and for how long, is that of `lapwing-cache`.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};

use super::figures::{KeptFigures, NotKept};
use super::versions::{KeyVersions, SeenVersion, Written};
use crate::cache_config::{DownstreamCache, DownstreamCacheMode};
use crate::http1::FeastCall;
use crate::name::CallName;
use lapwing_cache::CacheScope;
use lapwing_cache::{
    AnswerParts, AnswerStore, CacheLookup, KeyContext, KeyForm, KeyMaker, KeyRules, KeyScope, KeyedRequest, RequestTerms,
    StoredAnswer, StoringRules,
};
use lapwing_ledger::{Stamp, clock};
use lapwing_protocol::matches_glob;

/// What is kept of one downstream.
#[derive(Debug)]
pub(crate) struct KeptAnswers {
    store: AnswerStore,
    keys: KeyMaker,
    key_rules: KeyRules,
    storing: StoringRules,
    pub(crate) versions: KeyVersions,
    pub(crate) figures: KeptFigures,
    pub(crate) mode: DownstreamCacheMode,
    paths: Vec<String>,
}

/// A request that is in a rule.
#[derive(Debug)]
pub(crate) struct ListedRequest {
    pub(crate) head: Request<()>,
    pub(crate) name: CallName,
    pub(crate) rule: usize,
}

/// A request that the store was asked.
#[derive(Debug)]
pub(crate) struct AskedRequest {
    pub(crate) name: CallName,
    key: KeyedRequest,
    seen: Option<SeenVersion>,
    asked: Stamp,
    /// The body that would have been answered, in `observe`.
    would_be: Option<Bytes>,
}

/// What is kept of a request.
#[derive(Debug)]
pub(crate) enum RequestLook {
    /// The answer to give.
    Answer(Vec<u8>),
    /// Nothing: what is to be remembered of it until the store has answered.
    Ask(Box<AskedRequest>),
    /// Its answer is its own.
    Own,
}

impl KeptAnswers {
    /// Nothing, under these rules; `secret` is that of the keys.
    pub(crate) fn new(config: &DownstreamCache, secret: [u8; 32]) -> Self {
        let scope = match config.scope {
            CacheScope::Authorization => KeyScope::Credentials,
            CacheScope::Shared => KeyScope::Shared,
        };
        let (ttl_ns, max_entry) = (config.ttl.as_nanos(), config.max_entry.get());
        Self {
            store: AnswerStore::new(config.max_bytes.get(), max_entry),
            keys: KeyMaker::new(secret),
            key_rules: KeyRules {
                form: KeyForm::Bytes,
                scope,
                vary: config.vary.iter().map(|name| name.get().clone()).collect(),
            },
            storing: StoringRules { ttl_ns, max_entry },
            versions: KeyVersions::new(ttl_ns),
            figures: KeptFigures::new(config.paths.len()),
            mode: config.mode,
            paths: config.paths.clone(),
        }
    }

    /// The rule of a request, if it may be answered from memory; else whether it reads.
    pub(crate) fn listed(&self, head: Request<()>) -> Result<ListedRequest, bool> {
        let (method, path) = (head.method().as_str(), head.uri().path());
        let is_feast = FeastCall::is_one(method, path);
        let rule = self.paths.iter().position(|glob| matches_glob(glob.as_bytes(), path.as_bytes()));
        let is_read = is_feast || method == "GET";
        match rule.filter(|_| is_read) {
            Some(rule) => {
                Ok(ListedRequest { name: CallName::of_http(if is_feast { FeastCall::NAME } else { method }), head, rule })
            }
            None => Err(is_read),
        }
    }

    /// What is kept of a whole request.
    pub(crate) fn look(&mut self, request: &ListedRequest, body: Bytes, now: Stamp) -> RequestLook {
        let terms = match RequestTerms::of(request.head.headers()) {
            Ok(terms) => terms,
            Err(why) => {
                self.figures.refuse_for(why.name());
                return RequestLook::Own;
            }
        };
        let key = self.keys.key(&request.head, &[body], KeyContext::default(), &self.key_rules);
        let found = self.store.get(&key.key, &terms, now);
        let is_hit = matches!(found, CacheLookup::Hit(_));
        self.figures.looked(request.name, request.rule, is_hit);
        let mut would_be = None;
        if let CacheLookup::Hit(answer) = found {
            if self.mode == DownstreamCacheMode::On {
                let wall = SystemTime::UNIX_EPOCH + Duration::from_nanos(clock::unix_ns());
                return RequestLook::Answer(written(&answer, &key, now, wall));
            }
            would_be = Some(answer.body().clone());
        }
        let seen = self.versions.see(&[], now);
        RequestLook::Ask(Box::new(AskedRequest { name: request.name, key, seen, asked: now, would_be }))
    }

    /// The store has answered; `is_complete` if nothing of the body is missing.
    pub(crate) fn answered(
        &mut self,
        asked: AskedRequest,
        status: StatusCode,
        headers: &HeaderMap,
        body: Option<Vec<u8>>,
        now: Stamp,
    ) {
        self.figures.asked(asked.name, now.since(asked.asked));
        if let Some(would_be) = asked.would_be {
            self.figures.differed += u64::from(status != StatusCode::OK || body.as_deref() != Some(&would_be[..]));
            return;
        }
        if !asked.seen.is_some_and(|seen| self.versions.is_current(seen)) {
            return self.figures.refuse(NotKept::Changed);
        }
        let is_complete = body.is_some();
        let pieces = [Bytes::from(body.unwrap_or_default())];
        let parts = AnswerParts { status, headers, body: &pieces, trailers: None, is_complete };
        let stored = parts
            .terms(self.storing, &self.key_rules)
            .and_then(|terms| StoredAnswer::new(&asked.key, parts, terms, now.since(asked.asked), asked.asked))
            .and_then(|answer| self.store.put(asked.key.key, answer));
        match stored {
            Ok(_) => self.figures.kept += 1,
            Err(why) => self.figures.refuse_for(why.name()),
        }
    }

    /// A call begins that may change anything.
    pub(crate) fn begin_write(&mut self) {
        self.figures.forgot_all += 1;
        self.versions.begin(Written::All);
        self.store.clear();
    }

    /// What passes may change anything.
    pub(crate) fn block(&mut self, now: Stamp) {
        self.versions.block(Written::All, now);
        self.store.clear();
    }

    /// How large an answer may be that is kept.
    pub(crate) fn most(&self) -> usize {
        usize::try_from(self.storing.max_entry).unwrap_or(usize::MAX)
    }

    /// How many answers are kept, and the bytes that they cost.
    pub(crate) fn size(&self) -> (u64, u64) {
        let counts = self.store.counts();
        (counts.entries as u64, counts.bytes)
    }

    /// The paths, as they were given.
    pub(crate) fn rules(&self) -> impl Iterator<Item = String> {
        self.paths.iter().cloned()
    }
}

/// An answer as HTTP/1.1 has it.
fn written(answer: &StoredAnswer, key: &KeyedRequest, now: Stamp, wall: SystemTime) -> Vec<u8> {
    let again = answer.again(key, now, wall);
    let mut bytes = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in &again.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    again.body.iter().for_each(|piece| bytes.extend_from_slice(piece));
    bytes
}
