//! Conversations with a store that is played: what is answered, what passes, what is forgotten. Real sockets and a real Redis are in
//! `tests/real`.

mod http;
mod model;
mod random;
mod rules;

use self::model::ModelStore;
use super::kept::KeptReplies;
use super::redis::RedisConversation;
use super::turn::{Outgoing, Turn};
use crate::cache_config::DownstreamCache;
use crate::call::shown::at;

/// What is kept under these settings.
pub(crate) fn kept(config: &str) -> KeptReplies {
    let config: DownstreamCache = serde_json::from_str(config).unwrap();
    KeptReplies::new(&config)
}

/// A command as clients send it.
pub(crate) fn command(words: &str) -> Vec<u8> {
    let words: Vec<_> = words.split(' ').collect();
    let argument = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(argument).collect::<String>()).into()
}

pub(crate) fn commands(list: &[&str]) -> Vec<u8> {
    list.iter().flat_map(|words| command(words)).collect()
}

/// A connection through the cache to a store that answers at once.
#[derive(Default)]
pub(crate) struct Through {
    conversation: RedisConversation,
    session: model::Session,
    /// What the store was asked.
    pub(crate) passed: Vec<u8>,
}

impl Through {
    /// What comes back for `bytes`, sent in pieces of `step` at the time `now`.
    pub(crate) fn ask(&mut self, bytes: &[u8], step: usize, now: u64, kept: &mut KeptReplies, store: &mut ModelStore) -> Vec<u8> {
        let mut back = Vec::new();
        for piece in bytes.chunks(step) {
            let mut out = Outgoing::default();
            self.conversation.client(piece, Turn { now: at(now), room: usize::MAX }, kept, &mut out);
            back.extend(out.answers);
            self.passed.extend_from_slice(&out.to_store);
            let replies = self.session.receive(&out.to_store, store);
            for piece in replies.chunks(step) {
                self.conversation.server(piece, at(now), kept);
            }
            back.extend(replies);
        }
        back
    }

    pub(crate) fn conversation(&mut self) -> &mut RedisConversation {
        &mut self.conversation
    }
}
