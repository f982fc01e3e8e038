//! Errors inside a body: an upstream that has sent `200` can say that it failed only in what follows.
//!
//! Four things are read, each in constant memory and after the bytes are on their way:
//! - members of JSON documents that name an error ([`fields`]), in whole answers and in each document of a stream;
//! - whole JSON answers of which nothing else is read, by their first bytes ([`glance`]);
//! - the names of server-sent events (`event: error`) and llama.cpp's older field `error:`;
//! - the frame that ends an answer of gRPC-Web or a stream of Connect ([`end_frame`]), which carries the status of the call.
//!
//! Texts, and what is deeper in a document than its error would be, are never searched: a legal answer may have any word in it.

mod end_frame;
mod fields;
mod glance;
mod place;
mod quads;

pub(crate) use end_frame::EndFrameReader;
pub(crate) use fields::{BodyErrors, MEMBERS, WHOLE};
pub use glance::Glance;
pub use place::ErrorPlace;

#[cfg(test)]
mod tests;
