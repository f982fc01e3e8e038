//! Requests of another API as calls of a model that the engine runs: which values of the JSON are which tensors, and texts through the
//! model's tokenizer.
//!
//! - `config` is an element of `shadow.mappings`;
//! - `postprocessing` is what the API makes of an output; `model_files` are the files that come with a model;
//! - `request` is a mapping compiled for one model: it turns a body into a call of the Open Inference Protocol; and those of one target,
//!   by route;
//! - `call`: what goes to the model, and why a request cannot become one;
//! - `texts`: token ids, masks and segments of texts; `columns`: named values as rows of one input; `images`:
//!   pictures, also in `multipart` forms.
//!
//! Everything runs on threads of copies, off every request's path. Memory is bounded: a request by the caller's limit, before and after
//! decompression, its document by 16 bytes for each byte of it, and the tensors by the same limit.

mod call;
mod columns;
mod config;
mod image_source;
mod images;
mod model_files;
mod multipart;
mod postprocessing;
mod request;
mod texts;

pub use call::{MappedCall, MappingFault, ModelPorts};
pub use config::MappingRule;
pub(crate) use config::{MAPPING, MAX_MAPPINGS};
pub use request::{MappingError, MappingTable, RequestMapping};

pub use lapwing_compare::outputs::TensorPort;

#[cfg(test)]
mod tests;
