//! A replay: sends a recording to one or more targets, compares them, and says whether gates hold; or makes the report of an earlier one
//! again, from its pairs. `lapwing replay` is the command's: it reads the arguments and loads models.
//!
//! - `schedule`: when each request is due, and by how much that was missed;
//! - `play`: the thread that sends, through the same stack in front of each target as copies of live requests take;
//! - `receiver`: the targets' spans, if they send any; `accounts`: the pairs;
//! - `session` puts these together, `pairs_report` reads the pairs of an earlier replay; `report` says what came of it.

mod accounts;
mod pairs_report;
mod play;
mod receiver;
mod report;
mod schedule;
mod session;
mod settings;
#[cfg(test)]
mod tests;

pub use self::pairs_report::report_of_pairs;
pub use self::report::{ReplayError, ReplayReport, gate_in_words};
pub use self::schedule::Pace;
pub use self::session::replay;
pub use self::settings::ReplaySettings;
