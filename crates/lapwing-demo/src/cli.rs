//! The command line of `lapwing demo`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::options::Demo;
use super::run::{Places, StartLapwing, run};
use super::scenario::{Changes, LoadLevel, Played, SCENARIOS, Scenario, find};
use super::story::{STORY, play_story};
use lapwing_settings::Bind;

/// The arguments of `lapwing demo`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct DemoArgs {
    /// End after this many seconds [default: on Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Requests per second, of all clients together [default: 50, or what suits the scenario]
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// Number of clients, each with its own connection; a scenario has as many as it needs
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub clients: u16,
    /// Address that Lapwing listens on [default: 127.0.0.1, any free port]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<Bind>,
    /// Address of Lapwing's /stats, /exchanges and /metrics [default: 127.0.0.1, any free port]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<Bind>,
    /// Play a trouble; without a name, several in turn (story)
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(names()), num_args = 0..=1, default_missing_value = STORY)]
    pub scenario: Option<String>,
    /// What the draws of a scenario begin with
    #[arg(long, value_name = "N", default_value_t = 1, requires = "scenario")]
    pub seed: u64,
    /// How much a scenario sends
    #[arg(long, value_enum, default_value_t, requires = "scenario")]
    pub load: LoadLevel,
    /// How many requests a scenario's model works on at once, 0 for any number [default: what suits the scenario]
    #[arg(long, value_name = "N", requires = "scenario", value_parser = clap::value_parser!(u16).range(0..=64))]
    pub instances: Option<u16>,
    /// What a scenario's model takes for a request of no rows, in milliseconds [default: what suits the scenario]
    #[arg(long, value_name = "N", requires = "scenario", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub model_ms: Option<u64>,
    /// A scenario's latency budget, in milliseconds [default: what suits the scenario]
    #[arg(long, value_name = "N", requires = "scenario", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub budget_ms: Option<u64>,
    /// File for what the scenario did to each request, as lines of JSON
    #[arg(long, value_name = "FILE", requires = "scenario")]
    pub truth: Option<PathBuf>,
}

/// What may be played.
fn names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).chain([STORY]).collect()
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.trim().parse().map_err(|_| "is not a number".to_owned())?;
    if (0.1..=100_000.0).contains(&rate) { Ok(rate) } else { Err("must be between 0.1 and 100000".to_owned()) }
}

/// Runs the demonstration in front of what `lapwing` starts; writes an error to standard error.
pub fn run_command(args: &DemoArgs, lapwing: StartLapwing<'_>) -> ExitCode {
    let DemoArgs { seconds, rate, clients, listen, admin, scenario, seed, load, instances, model_ms, budget_ms, truth } =
        args.clone();
    let places = Places { listen: listen.map(Bind::get), admin: admin.map(Bind::get) };
    let demo = Demo { seconds, rate, clients: clients.into(), ..Demo::default() };
    let changes = Changes { instances: instances.map(usize::from), model_ms, budget_ms };
    let played = |scenario: &Scenario| Played { scenario: scenario.with(changes), level: load, seed, truth };
    let ran = match scenario.as_deref() {
        None => run(demo, places, lapwing),
        Some(STORY) => play_story(&demo, &played(&SCENARIOS[0]), places, lapwing),
        Some(name) => run(Demo { played: find(name).map(played), ..demo }, places, lapwing),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lapwing demo: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DemoArgs,
    }

    fn parsed(line: &str) -> Result<DemoArgs, String> {
        let line = line.strip_prefix("lapwing ").unwrap();
        Line::try_parse_from(line.split(' ')).map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_demo_has_defaults_and_bounds() {
        let defaults = DemoArgs {
            seconds: None,
            rate: None,
            clients: 4,
            listen: None,
            admin: None,
            scenario: None,
            seed: 1,
            load: LoadLevel::Low,
            instances: None,
            model_ms: None,
            budget_ms: None,
            truth: None,
        };
        assert_eq!(parsed("lapwing demo").unwrap(), defaults);
        assert_eq!(usize::from(defaults.clients), Demo::default().clients);
        let given = parsed("lapwing demo --seconds 5 --rate 0.5 --clients 2 --listen :0").unwrap();
        let wanted =
            DemoArgs { seconds: Some(5), rate: Some(0.5), clients: 2, listen: Some(":0".parse().unwrap()), ..defaults.clone() };
        assert_eq!(given, wanted);
        let given = parsed("lapwing demo --scenario far-region --seed 7 --load high --truth /tmp/t").unwrap();
        let scenario = Some("far-region".to_owned());
        assert_eq!(given, DemoArgs { scenario, seed: 7, load: LoadLevel::High, truth: Some("/tmp/t".into()), ..defaults });
        for wrong in [
            "--rate 0",
            "--rate NaN",
            "--clients 0",
            "--seconds 0",
            "--listen nowhere",
            "--upstream http://m:1",
            "--scenario calm",
            "--seed 3",
            "--load high",
            "--instances 1",
            "--scenario healthy --budget-ms 0",
        ] {
            assert!(parsed(&format!("lapwing demo {wrong}")).is_err(), "{wrong}");
        }
        for story in ["--scenario", "--scenario story", "--scenario --seconds 72"] {
            assert_eq!(parsed(&format!("lapwing demo {story}")).unwrap().scenario.as_deref(), Some(STORY), "{story}");
        }
    }
}
