//! Compares two answers to one request: what they say ([`outputs`]) and how long they took ([`ab`]).
//!
//! It is given finished answers and latencies. It never sends, waits or reads a clock to time anything, never runs on a request's path,
//! and never fails: what cannot be decoded or judged is counted as such.
//!
//! ```
//! use bytes::Bytes;
//! use http::HeaderMap;
//! use lapwing_compare::outputs::{Comparer, Config, FinishedAnswer};
//! use lapwing_protocol::OutputKind;
//!
//! let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, "application/json".parse().unwrap())]);
//! let bodies = [r#"{"label":"cat","score":0.91}"#, r#"{"label":"dog","score":0.91}"#].map(|body| [Bytes::from(body)]);
//! let answer = |body| FinishedAnswer { status: 200, headers: &headers, grpc_status: None, body, is_complete: true };
//! let comparer = Comparer::new(&Config::default());
//! let comparison = comparer.compare("POST /classify", OutputKind::Other, &answer(&bodies[0]), &answer(&bodies[1]));
//! assert_eq!(comparison.is_different(), Some(true));
//! assert_eq!(comparison.fields[0].field, "$.label");
//! ```

#![forbid(unsafe_code)]

pub mod ab;
pub mod outputs;
pub mod secret_names;
