//! `lapwing redirect`: the traffic of a port comes to the sidecar.

use std::io;
use std::num::NonZeroU16;

use clap::Args;

/// Exit codes (sysexits.h): `EX_OSERR`, `EX_NOPERM`.
const NOT_THERE: i32 = 71;
const NO_PERMISSION: i32 = 77;

/// What `lapwing redirect` is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct RedirectArgs {
    /// The server's port, to which clients connect
    #[arg(long, value_name = "PORT", required_unless_present = "end")]
    from: Option<NonZeroU16>,
    /// The port on which Lapwing listens
    #[arg(long, value_name = "PORT", required_unless_present = "end")]
    to: Option<NonZeroU16>,
    /// Take the rule away
    #[arg(long, conflicts_with_all = ["from", "to"])]
    end: bool,
}

/// Writes the rule, or takes it away; the exit code.
pub(crate) fn run(args: &RedirectArgs) -> i32 {
    let (done, said) = match (args.from, args.to) {
        (Some(from), Some(to)) if from == to => {
            eprintln!("lapwing: --from and --to are the same port, {from}");
            return super::super::check::USAGE;
        }
        (Some(from), Some(to)) => (lapwing_net::redirect(from, to), format!("what comes to port {from} goes to port {to}")),
        _ => (lapwing_net::end_redirect(), "no port is redirected".to_owned()),
    };
    match done {
        Ok(()) => {
            println!("lapwing: {said}");
            0
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!(
                "lapwing: cannot redirect: {error}; it needs the capability NET_ADMIN (securityContext.capabilities.add), and to run as root"
            );
            NO_PERMISSION
        }
        Err(error) => {
            eprintln!(
                "lapwing: cannot redirect: {error}; it needs nftables in the kernel (nf_tables, nft_redir; family inet: Linux 5.2)"
            );
            NOT_THERE
        }
    }
}
