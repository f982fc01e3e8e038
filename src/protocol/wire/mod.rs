//! Incremental readers of traffic: each is fed pieces of a message, cut anywhere, and hands over what is watched. They keep
//! a fixed, small memory, allocate at construction only, run in time linear in the bytes, and never panic; what is broken
//! goes quiet and says so. They know formats and nothing of servers: which places mean what is said by the protocols.

pub mod grpc;
pub mod json;
pub mod proto;
#[doc(hidden)]
pub mod reader_properties;
pub mod sse;

pub use grpc::{Frame, FrameReader};
pub use json::{ElementMode, JsonItem, JsonPaths, JsonReader, JsonValue, PathStep, TEXT_BYTES};
pub use proto::{ProtoFields, ProtoReader, ProtoShape, ProtoValue};
pub use sse::{SsePiece, SseReader};
