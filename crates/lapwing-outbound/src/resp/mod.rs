//! The Redis protocol, RESP2 and RESP3, read while it passes: which commands a client sends, and which replies answer them.
//!
//! Both readers take bytes in pieces of any length and keep none of them but the names of commands and a few short arguments
//! (`BLOCK`, `REPLY OFF`, the first word of a push), at most 24 bytes at a time. What cannot be followed any more ends the reading, with
//! the reason; the bytes pass on.

mod command_reader;
mod pairing;
mod reply_reader;

#[cfg(test)]
mod tests;

pub(crate) use command_reader::number;
pub(crate) use pairing::RespReader;
pub(crate) use reply_reader::{ReplyReader, ReplySink, ReplyValue};
