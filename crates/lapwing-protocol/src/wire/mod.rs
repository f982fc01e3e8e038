//! Incremental readers of traffic formats. Each is fed pieces of a message, cut anywhere, and returns the watched values. A
//! reader uses a fixed, small amount of memory, allocates at construction only, runs in time linear in the bytes, and never
//! panics. On invalid input it stops returning values and reports that it did. Readers know formats, not servers: the protocols
//! define which fields have a meaning.

pub mod csv;
pub mod form;
pub mod grpc;
pub mod json;
pub mod proto;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod reader_properties;
pub mod sse;

pub use csv::CsvReader;
pub use form::{FormField, FormReader};
pub use grpc::{Frame, FrameReader};
pub use json::{ElementMode, JsonItem, JsonPaths, JsonReader, JsonValue, PathStep, TEXT_BYTES};
pub use proto::{ProtoFields, ProtoReader, ProtoShape, ProtoValue};
pub use sse::{SsePiece, SseReader};
