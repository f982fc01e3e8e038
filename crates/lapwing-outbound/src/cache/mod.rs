//! Answers of a store that are kept and given again, so that it is not asked twice.
//!
//! - [`config`] is the section `cache` of a downstream; [`figures`] is what is counted, [`families`] and [`view`] what is shown of it;
//! - [`versions`] tells whether a key may have changed since its answer was asked for: who writes through the same listener says so;
//! - [`kept`] keeps the replies of a Redis, by the connection's database, user and protocol, the command and its key;
//! - [`command_class`] knows the commands, [`command_framer`] where they end, [`context`] what a connection's replies depend on,
//!   [`captured`] takes replies apart, and [`redis`] brings it together for one connection;
//! - [`kept_http`] and [`http`] do the same for HTTP/1.1;
//! - [`splice`] passes the bytes.
//!
//! A connection's call is answered from memory only while none of its earlier calls waits for the store. So answers keep their order,
//! and none is older than one that was given before it. What cannot be followed passes on untouched.

mod captured;
mod command_class;
mod command_framer;
mod context;
mod conversation;
mod families;
mod figures;
mod http;
mod kept;
mod kept_http;
mod redis;
mod store;
mod turn;
mod versions;
mod view;

#[cfg(test)]
mod tests;

pub(crate) use conversation::Conversation;
pub(crate) use families::{CacheFamilies, encode_cache};
pub(crate) use store::StoreCache;
pub(crate) use turn::{Outgoing, Turn};
pub(crate) use view::CacheView;
