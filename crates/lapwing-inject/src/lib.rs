//! Puts Lapwing into the pods of Kubernetes manifests: finds the model server and its port, brings the traffic to the sidecar, and takes
//! all of it out again; by command, or when pods are made ([`webhook`]).
//!
//! ```
//! use lapwing_inject::{InjectOptions, InjectVerdict, inject, remove};
//!
//! let pod = "\
//! apiVersion: v1
//! kind: Pod
//! metadata: {name: ranker}
//! spec:
//!   containers:
//!   - name: server
//!     image: vllm/vllm-openai:v0.9.1   # serves on 8000
//! ";
//! let injected = inject(pod, &InjectOptions::default())?;
//! assert_eq!(injected.reports[0].verdict, InjectVerdict::Injected);
//! assert!(injected.text.contains("--upstream=http://127.0.0.1:8000"));
//! assert_eq!(remove(&injected.text)?.text, pod);
//! # Ok::<_, lapwing_inject::ManifestError>(())
//! ```
#![forbid(unsafe_code)]

mod changes;
mod containers;
mod found;
mod injection;
mod manifest;
mod options;
mod plan;
mod pod;
mod record;
mod reporting;
mod sidecar;
pub mod webhook;

pub use injection::{InjectReport, InjectVerdict, Injection, inject, remove};
pub use manifest::{Edit, Manifest, ManifestError};
pub use options::{InjectOptions, KubernetesVersion, MemoryAmount, ResourceName, Way};
