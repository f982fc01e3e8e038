//! `lapwing check`: prints every fault of a configuration at once, or the configuration in force with the origin of each value. It
//! opens no port.

use std::io::{self, Write};
use std::sync::Arc;

use super::identities::Identities;
use crate::config::{Sources, load};
use lapwing_settings::Fault;

/// The exit code for a wrong command line or configuration (`EX_USAGE`).
pub(crate) const USAGE: i32 = 64;

/// Checks `sources`. Prints the effective configuration to standard output and returns 0, or prints the faults to standard
/// error and returns [`USAGE`]. Warnings go to standard error too.
pub(crate) fn check(sources: &Sources) -> i32 {
    // a write fails only if nothing reads the output; then there is nothing to report to
    report(sources, &mut io::stdout().lock(), &mut io::stderr().lock()).unwrap_or(USAGE)
}

/// How many faults there are, in words.
pub(crate) fn count(faults: &[Fault]) -> String {
    if faults.len() == 1 { "1 fault".to_owned() } else { format!("{} faults", faults.len()) }
}

/// Writes the number of faults, then one line per fault.
pub(crate) fn write_faults(faults: &[Fault], err: &mut impl Write) -> io::Result<()> {
    writeln!(err, "lapwing: {} in the configuration", count(faults))?;
    faults.iter().try_for_each(|fault| writeln!(err, "  {fault}"))
}

fn report(sources: &Sources, out: &mut impl Write, err: &mut impl Write) -> io::Result<i32> {
    match load(sources) {
        Ok(loaded) => {
            if let Err(faults) = Identities::load(&loaded.config, Arc::default()) {
                write_faults(&faults, err)?;
                return Ok(USAGE);
            }
            for warning in &loaded.warnings {
                writeln!(err, "lapwing: warning: {warning}")?;
            }
            out.write_all(loaded.render().as_bytes())?;
            out.flush()?;
            Ok(0)
        }
        Err(faults) => {
            write_faults(&faults, err)?;
            Ok(USAGE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flag;

    fn run(flags: &[(&str, &str)]) -> (i32, String, String) {
        let flag = |&(path, text): &(&str, &str)| Flag { path: path.into(), name: format!("--{path}"), text: text.into() };
        let sources = Sources { flags: flags.iter().map(flag).collect(), ..Sources::default() };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = report(&sources, &mut out, &mut err).unwrap();
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn faults_are_on_standard_error_and_exit_with_64() {
        let (code, out, err) = run(&[("listen", "nowhere"), ("log_format", "xml")]);
        assert_eq!((code, out.as_str()), (64, ""));
        assert_eq!(
            err,
            "lapwing: 3 faults in the configuration\n  \
             listen: nowhere: needs host:port, as in 127.0.0.1:8080 or :8080 (flag --listen)\n  \
             log_format: xml: must be text or json (flag --log_format)\n  \
             upstream: is required: give --upstream URL, LAPWING_UPSTREAM, or `upstream:` or `upstreams:` in the file\n"
        );
    }

    #[test]
    fn what_is_in_force_is_on_standard_output_and_warnings_are_not() {
        let (code, out, err) = run(&[("upstream", "http://model:8000"), ("otlp_http", ":4318")]);
        assert_eq!(code, 0);
        assert!(out.starts_with("upstream: http://model:8000                  # flag --upstream, fixed at the start\n"), "{out}");
        assert!(err.starts_with("lapwing: warning: otlp_http: 0.0.0.0:4318: "), "{err}");
    }
}
