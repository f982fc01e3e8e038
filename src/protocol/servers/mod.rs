//! What each model server reports of itself, by exact field name: one table.

mod bento_ml;
mod debug_duration;
mod kserve;
mod llama_cpp;
mod ml_server;
mod ollama;
mod ray_serve;
mod row;
mod said;
mod sglang;
pub mod table;
mod tei;
mod tensorrt_llm;
mod tf_serving;
mod tgi;
mod torch_serve;
mod triton;
mod vllm;

pub use row::{Carrier, Flags, Row, Says, Scale};
pub use said::{Part, Said, Told};
