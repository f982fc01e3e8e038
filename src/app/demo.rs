//! Lapwing in front of the demo's server, started as a user would start it.

use std::process::ExitCode;

pub(crate) use lapwing_demo::DemoArgs;
use lapwing_demo::FrontedServer;

use super::running;
use crate::config::{self, Flag, Sources};

/// Runs `lapwing demo`.
pub(crate) fn run_command(args: &DemoArgs) -> ExitCode {
    lapwing_demo::run_command(args, &start)
}

fn sources(settings: &[(&str, String)]) -> Sources {
    let flag = |(path, text): &(&str, String)| Flag { path: (*path).to_owned(), name: format!("--{path}"), text: text.clone() };
    Sources { flags: settings.iter().map(flag).collect(), ..Sources::default() }
}

fn start(settings: &[(&str, String)]) -> Result<FrontedServer, String> {
    let loaded = config::load(&sources(settings))
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let running = running::start(&loaded).map_err(|error| error.to_string())?;
    let at = running.addresses();
    Ok(FrontedServer { listen: at.listen, admin: at.admin, stop: Box::new(|| running.stop()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_scenarios_are_those_that_lapwing_reads() {
        let all = lapwing_demo::scenario_settings();
        assert!(all.len() > 10, "{} scenarios", all.len());
        for (scenario, mut settings) in all {
            settings.push(("upstream", "http://127.0.0.1:9".to_owned()));
            let loaded = config::load(&sources(&settings)).unwrap();
            assert_eq!(loaded.config.metrics.budgets.len(), 1, "{scenario}");
        }
    }
}
