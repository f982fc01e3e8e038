//! What of the kernel only some need: IPv6, and the capability of `lapwing redirect`.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, TcpListener};

use super::check::DoctorReport;
use crate::config::Config;

/// `CAP_NET_ADMIN` (capabilities(7)).
const NET_ADMIN: u64 = 1 << 12;

pub(crate) fn check(config: &Config, report: &mut DoctorReport) {
    ipv6(config, TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok(), report);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    redirect(effective(&status), report);
}

fn ipv6(config: &Config, has_ipv6: bool, report: &mut DoctorReport) {
    const NAME: &str = "ipv6";
    let every = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    if has_ipv6 {
        report.ok(NAME, "this machine has it");
    } else if config.listen.get().ip() == every {
        report.note(
            NAME,
            "this machine has none: listen, [::], is every address of IPv4 alone",
            "turn IPv6 on if clients use it",
        );
    } else {
        report.ok(NAME, "this machine has none, and no address needs it");
    }
}

fn redirect(capabilities: u64, report: &mut DoctorReport) {
    let found = if capabilities & NET_ADMIN > 0 {
        "NET_ADMIN is there, so `lapwing redirect` can write its rule"
    } else {
        "no NET_ADMIN, which only `lapwing redirect` needs"
    };
    report.ok("redirect", found);
}

/// The effective capabilities, by the text of a process's `status`.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|number| u64::from_str_radix(number.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_that_needs_ipv6_lacks_it() {
        let noted = |listen: &str, has_ipv6| {
            let config = Config { listen: listen.parse().unwrap(), ..Config::default() };
            let mut report = DoctorReport::default();
            ipv6(&config, has_ipv6, &mut report);
            report.checks[0].advice.is_some()
        };
        assert_eq!([noted("[::]:8080", false), noted("[::]:8080", true), noted(":8080", false)], [true, false, false]);
    }

    #[test]
    fn capabilities_are_read() {
        assert_eq!(effective("Name:\tlapwing\nCapEff:\t0000000000001000\nCapBnd:\t0\n"), NET_ADMIN);
        assert_eq!((effective("CapEff:\t0000000000000000\n"), effective("")), (0, 0));
    }
}
