//! The demo's last sentence: which stage took most of the time, what to do about it, and what changed since the start.
//!
//! All figures are measured: shares and quantiles by `/stats`, hit rates by the cache itself.

use lapwing_console::stats::{Series, Stats, stages_by_share};
use lapwing_console::units::{duration, percent};
use lapwing_ledger::Stage;

/// Two moments of a run, and the feature cache's hit rate.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// The first seconds, if they were recorded.
    pub(crate) first: Option<First>,
    /// The last statistics, and their period in words: `in the last 10 s`.
    pub(crate) last: Stats,
    pub(crate) window: &'static str,
    /// The feature cache's hit rate at the end; `None` if nothing was looked up.
    pub(crate) hit_rate: Option<f64>,
}

/// The figures early in a run.
#[derive(Debug, Default)]
pub(crate) struct First {
    /// The age of the run, in seconds.
    pub(crate) seconds: f64,
    pub(crate) stats: Stats,
    pub(crate) hit_rate: Option<f64>,
}

/// One sentence.
pub(crate) fn sentence(course: &Course) -> String {
    let series = course.last.busiest();
    let Some((series, (stage, share))) = series.and_then(|series| Some((series, *stages_by_share(series).first()?))) else {
        return "No stage was measured, so none took most of the time.".to_owned();
    };
    let p50 = series.stages.get(stage).map_or(0.0, |figures| figures.p50_ns);
    let (meaning, advice) = Stage::from_name(stage).map_or(("a stage that this version does not know", "look it up"), about);
    let change = change(course, stage, series);
    format!(
        "The largest share of the time {}, {}, went to {stage} (p50 {}), {meaning}: {advice}{change}.",
        course.window,
        percent(share),
        duration(p50)
    )
}

/// The change since the first seconds.
fn change(course: &Course, stage: &str, series: &Series) -> String {
    let Some(first) = &course.first else {
        return course
            .hit_rate
            .map_or_else(String::new, |rate| format!("; the feature cache answered {} of lookups", whole(rate)));
    };
    let rates = match (first.hit_rate, course.hit_rate) {
        (Some(from), Some(to)) => {
            let verb = if to > from { "rose" } else { "went" };
            format!("the feature cache's hit rate {verb} from {} to {}", whole(from), whole(to))
        }
        _ => return String::new(),
    };
    let seconds = first.seconds;
    let then = first.stats.busiest();
    match then.and_then(|then| stages_by_share(then).first().copied()) {
        Some((other, share)) if other != stage => {
            format!("; in the first {seconds:.0} s it was {other} with {}, before {rates}", percent(share))
        }
        Some(_) => {
            let hydration = |series: &Series| share_of(series, Stage::Hydration.name());
            let (from, to) = (then.map_or(0.0, hydration), hydration(series));
            format!(
                "; since the first {seconds:.0} s {rates}, and hydration's share went from {} to {}",
                percent(from),
                percent(to)
            )
        }
        None => format!("; since the first {seconds:.0} s {rates}"),
    }
}

fn whole(rate: f64) -> String {
    format!("{:.0} %", rate * 100.0)
}

fn share_of(series: &Series, stage: &str) -> f64 {
    series.stages.get(stage).and_then(|figures| figures.share).unwrap_or_default()
}

/// What a stage does, and how to make it shorter.
const fn about(stage: Stage) -> (&'static str, &'static str) {
    match stage {
        Stage::Ingress => ("receiving requests from the clients", "let clients send binary tensors instead of JSON"),
        Stage::Validation => ("checking requests in the proxy", "send fewer and larger requests"),
        Stage::Cache => ("looking for earlier answers", "keep fewer large answers"),
        Stage::Hydration => {
            ("looking up features", "fill the feature cache before the first request, or fetch a request's misses together")
        }
        Stage::Preprocessing => {
            ("tokenizing texts", "tokenize on more threads, or keep the tokens in the cache instead of the texts")
        }
        Stage::Queue => ("waiting for a thread or a batch", "add threads, or send less"),
        Stage::Forward => ("running the model", "run larger batches, or a smaller precision (int8)"),
        Stage::Postprocessing => ("calibrating scores", "calibrate with fewer examples, or by a table of steps"),
        Stage::Downstream => ("calling other services", "call them at the same time, or after the answer"),
        Stage::Egress => ("sending responses to the clients", "ask for fewer outputs, or for binary tensors"),
        Stage::Upstream => (
            "inside the server, of requests of which it reported nothing",
            "let the server report its steps; `lapwing upstream-flags` says how",
        ),
        Stage::Unattributed => (
            "work around the steps that the server reports, such as its HTTP layer",
            "report more steps, or send fewer and larger requests",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(stages: &str) -> Stats {
        serde_json::from_str(&format!(r#"{{"series": [{{"count": 9, "stages": {stages}}}]}}"#)).unwrap()
    }

    fn cold() -> Stats {
        stats(r#"{"hydration": {"share": 0.66, "p50_ns": 4100000}, "forward": {"share": 0.21, "p50_ns": 2000000}}"#)
    }

    fn warm() -> Stats {
        let egress = r#""egress": {"share": 0.0}"#;
        stats(&format!(r#"{{"hydration": {{"share": 0.091}}, "forward": {{"share": 0.612, "p50_ns": 2100000}}, {egress}}}"#))
    }

    #[test]
    fn a_stage_that_gave_way_to_another_is_told_with_its_reason() {
        let first = First { seconds: 2.02, stats: cold(), hit_rate: Some(0.312) };
        let course = Course { first: Some(first), last: warm(), window: "in the last 10 s", hit_rate: Some(0.954) };
        assert_eq!(
            sentence(&course),
            "The largest share of the time in the last 10 s, 61.2 %, went to forward (p50 2.10 ms), running the model: run larger \
             batches, or a smaller precision (int8); in the first 2 s it was hydration with 66.0 %, before the feature cache's hit \
             rate rose from 31 % to 95 %."
        );
    }

    #[test]
    fn the_same_stage_at_both_ends_is_told_with_what_changed_beside_it() {
        let first = First { seconds: 2.0, stats: warm(), hit_rate: Some(0.5) };
        let course = Course { first: Some(first), last: warm(), window: "in the last 10 s", hit_rate: Some(0.5) };
        let told = sentence(&course);
        let wanted = "(int8); since the first 2 s the feature cache's hit rate went from 50 % to 50 %, and hydration's share went from \
                      9.1 % to 9.1 %.";
        assert!(told.ends_with(wanted), "{told}");
    }

    #[test]
    fn a_short_run_and_one_without_figures_are_told_too() {
        let short = Course { last: cold(), window: "of this run", hit_rate: Some(0.2), ..Course::default() };
        assert_eq!(
            sentence(&short),
            "The largest share of the time of this run, 66.0 %, went to hydration (p50 4.10 ms), looking up features: fill the feature \
             cache before the first request, or fetch a request's misses together; the feature cache answered 20 % of lookups."
        );
        assert_eq!(sentence(&Course::default()), "No stage was measured, so none took most of the time.");
        let strange = Course { last: stats(r#"{"warp": {"share": 1.0}}"#), ..Course::default() };
        assert!(sentence(&strange).contains("100.0 %, went to warp (p50 0 ns), a stage that"), "{}", sentence(&strange));
    }

    #[test]
    fn every_stage_has_advice_without_a_full_stop() {
        for stage in Stage::ALL {
            let (meaning, advice) = about(stage);
            assert!(!meaning.is_empty() && !advice.is_empty() && !advice.ends_with('.'), "{}", stage.name());
        }
    }
}
