//! Requests of another API as calls of a model that the engine runs: which values of the JSON are which tensors, and texts through the
//! model's tokenizer.
//!
//! - `config` is an element of `shadow.mappings`;
//! - `request` is a mapping compiled for one model: it turns a body into a call of the Open Inference Protocol;
//! - `texts`: token ids, masks and segments of texts;
//! - `table`: the mappings of one target, by route.
//!
//! Everything runs on threads of copies, off every request's path. Memory is bounded: a request by the caller's limit, before and after
//! decompression, its document by 16 bytes for each byte of it, and the tensors by the same limit.

mod config;
mod fault;
mod request;
mod table;
mod texts;

pub use config::MappingRule;
pub(crate) use config::{MAPPING, MAX_MAPPINGS};
pub use fault::MappingFault;
pub use request::{MappedCall, ModelPorts, RequestMapping};
pub use table::{MappingError, MappingTable};

pub use lapwing_compare::outputs::TensorPort;

#[cfg(test)]
mod tests;
