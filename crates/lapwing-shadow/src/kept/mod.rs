//! What of a request goes into its copies and into recordings: the headers of a list (`headers`), and everything else but secrets, which
//! are known by the names of their parameters and members (`secrets`, `names`).
//!
//! Lapwing cannot know a secret by its value. So headers are let through by name and never held back by name; in queries and bodies,
//! where names are the user's own, those that secrets have by custom are held back. `shadow.headers` and `shadow.fields` change both.

mod headers;
mod names;

mod rules;
mod secrets;
mod spans;

#[cfg(test)]
mod tests;

pub use headers::KeptHeaders;
pub(crate) use headers::is_never_kept;

pub use secrets::{Secrets, Unsearchable};
