//! A story of several scenarios, one after the other, each with a line that says what now happens.

use tokio_util::sync::CancellationToken;

use crate::drive::print;
use crate::options::Demo;
use crate::run::{DemoError, Places, StartLapwing, run_until};
use crate::scenario::{Played, find};

/// The name of the story on the command line.
pub(crate) const STORY: &str = "story";
/// The scenarios of the story, in their order.
const CHAPTERS: [&str; 6] = ["healthy", "cold-cache", "bursts", "pauses", "slow-client", "far-region"];
/// The shortest chapter, in seconds.
const SHORTEST: u64 = 12;

/// Plays the story: each chapter on a server and a Lapwing of its own. `demo.seconds` are those of all chapters together.
///
/// # Errors
///
/// Those of [`run_until`].
pub(crate) fn play_story(demo: &Demo, played: &Played, places: Places, lapwing: StartLapwing<'_>) -> Result<(), DemoError> {
    let seconds = demo.seconds.unwrap_or_default() / CHAPTERS.len() as u64;
    let stop = CancellationToken::new();
    let scenarios = || CHAPTERS.iter().filter_map(|name| find(name));
    for (at, scenario) in scenarios().enumerate() {
        if stop.is_cancelled() {
            break;
        }
        print(&format!("\nchapter {} of {}: {}\n", at + 1, CHAPTERS.len(), scenario.name))?;
        let played = Played { scenario: *scenario, truth: None, ..played.clone() };
        run_until(Demo { seconds: Some(seconds.max(SHORTEST)), played: Some(played), ..demo.clone() }, places, lapwing, &stop)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chapter_is_a_scenario() {
        assert!(CHAPTERS.iter().all(|name| find(name).is_some()));
        assert_eq!(find(STORY), None);
    }
}
