//! The command line of `lapwing demo`.

use std::process::ExitCode;

use clap::Args;

use super::{Demo, Places, run};
use crate::settings::Bind;

/// The arguments of `lapwing demo`.
#[derive(Args, Clone, Copy, Debug, PartialEq)]
pub struct DemoArgs {
    /// End after this many seconds [default: on Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Requests per second, of all clients together
    #[arg(long, value_name = "R", default_value_t = Demo::default().rate, value_parser = rate)]
    pub rate: f64,
    /// Number of clients, each with its own connection
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub clients: u16,
    /// Address that Lapwing listens on [default: 127.0.0.1, any free port]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<Bind>,
    /// Address of Lapwing's /stats, /exchanges and /metrics [default: 127.0.0.1, any free port]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<Bind>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.trim().parse().map_err(|_| "is not a number".to_owned())?;
    if (0.1..=100_000.0).contains(&rate) { Ok(rate) } else { Err("must be between 0.1 and 100000".to_owned()) }
}

/// Runs the demonstration; writes an error to standard error.
pub(in crate::app) fn run_command(args: &DemoArgs) -> ExitCode {
    let demo = Demo { seconds: args.seconds, rate: args.rate, clients: args.clients.into(), server: None };
    let places = Places { listen: args.listen.map(Bind::get), admin: args.admin.map(Bind::get) };
    match run(demo, places) {
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
    use crate::app::cli::{Command, parse};

    #[test]
    fn the_demo_has_defaults_and_bounds() {
        let parsed = |line: &str| parse(line.split(' ').map(Into::into), []);
        let defaults = DemoArgs { seconds: None, rate: 50.0, clients: 4, listen: None, admin: None };
        assert_eq!(parsed("lapwing demo").unwrap(), Command::Demo(defaults));
        assert_eq!((defaults.rate, usize::from(defaults.clients)), (Demo::default().rate, Demo::default().clients));
        assert_eq!(
            parsed("lapwing demo --seconds 5 --rate 0.5 --clients 2 --listen :0").unwrap(),
            Command::Demo(DemoArgs { seconds: Some(5), rate: 0.5, clients: 2, listen: Some(":0".parse().unwrap()), admin: None })
        );
        for wrong in ["--rate 0", "--rate NaN", "--clients 0", "--seconds 0", "--listen nowhere", "--upstream http://m:1"] {
            assert!(parsed(&format!("lapwing demo {wrong}")).is_err(), "{wrong}");
        }
    }
}
