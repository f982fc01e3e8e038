//! Incremental readers of traffic: each is fed pieces of a message, cut anywhere, and hands over what is watched. They keep
//! a fixed, small memory, allocate at construction only, run in time linear in the bytes, and never panic; what is broken
//! goes quiet and says so. They know formats and nothing of servers: which places mean what is said by the protocols.

pub mod grpc;
pub mod json;
pub mod proto;
#[doc(hidden)]
pub mod reader_properties;
pub mod sse;

pub use grpc::{Frame, Frames};
pub use json::{Elements, Item, Json, Paths, Step, TEXT_BYTES, Value};
pub use proto::{Fields, Proto, ProtoValue, Shape};
pub use sse::{Sse, SsePiece};
