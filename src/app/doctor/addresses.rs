//! Whether the addresses that Lapwing listens on are free, or held by the Lapwing that runs; else by whom, where that can be seen.

use std::net::SocketAddr;

use super::check::DoctorReport;
use super::process::{Holder, Processes};
use super::running::AdminAnswer;
use crate::config::Config;
use lapwing_net::{Sharing, bind};
use lapwing_settings::Bind;

pub(crate) fn check(config: &Config, running: &AdminAnswer, processes: &Processes, report: &mut DoctorReport) {
    let receivers = [("otlp_grpc", config.otlp_grpc.on()), ("otlp_http", config.otlp_http.on())];
    let own = [("listen", config.listen), ("admin", config.admin)];
    let all = own.into_iter().chain(receivers.into_iter().filter_map(|(key, to)| Some((key, *to?))));
    let shown = |key: &str| running.found().and_then(|found| found.config.values[key].as_str()?.parse::<Bind>().ok());
    for (key, address) in all {
        let is_its = shown(key) == Some(address);
        one(key, address.get(), is_its, processes, report);
    }
    if let Some(address) = config.engine.address() {
        let its = running.found().and_then(|found| found.config.values["engine"]["listen"].as_str()?.parse::<Bind>().ok());
        one("engine.listen", address.get(), its == Some(address), processes, report);
    }
}

/// `is_its`: the Lapwing that answered says that it listens there.
fn one(key: &str, address: SocketAddr, is_its: bool, processes: &Processes, report: &mut DoctorReport) {
    if address.port() == 0 {
        return report.ok(key, format!("{address}: the system chooses a port"));
    }
    match bind(address, 1, Sharing::Alone) {
        Ok(_) if is_its => report.wrong(
            key,
            format!("{address} is free, though the running Lapwing says that it listens there"),
            "ask where it runs: in its container or network namespace (kubectl exec, nsenter)",
        ),
        Ok(_) => report.ok(key, format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            taken(key, address, is_its, processes.holder(address), report);
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => report.wrong(
            key,
            format!("{address}: {error}"),
            "choose a port from 1024 on, or give the capability NET_BIND_SERVICE (systemd: AmbientCapabilities=)",
        ),
        Err(error) => report.wrong(key, format!("{address}: {error}"), "choose an address that this machine has"),
    }
}

fn taken(key: &str, address: SocketAddr, is_its: bool, holder: Option<Holder>, report: &mut DoctorReport) {
    match holder {
        Some(holder) if is_its || holder.is_lapwing() => report.ok(key, format!("{address} is held by {holder}")),
        None if is_its => report.ok(key, format!("{address} is held by the running Lapwing")),
        Some(holder) => {
            let advice = format!("end {holder}, or set {key} to another address");
            report.wrong(key, format!("{address} is taken by {holder}"), advice);
        }
        None => report.wrong(
            key,
            format!("{address} is taken by another process"),
            format!("see which as root (ss -ltnp 'sport = :{}'), and end it, or set {key} to another address", address.port()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_port_is_free_its_own_or_named_with_who_has_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let processes = Processes::of(Path::new("/proc"));
        let mut report = DoctorReport::default();
        one("listen", address, false, &processes, &mut report);
        assert!(report.is_wrong() && report.checks[0].found.contains(&format!("pid {}", std::process::id())), "{report:?}");
        let mut report = DoctorReport::default();
        one("listen", address, true, &processes, &mut report);
        drop(listener);
        one("listen", address, false, &processes, &mut report);
        one("listen", "127.0.0.1:0".parse().unwrap(), false, &processes, &mut report);
        assert!(!report.is_wrong() && report.checks[1].found.ends_with("is free"), "{report:?}");
        // another one answers in our place, or the process ended meanwhile
        one("listen", address, true, &processes, &mut report);
        assert!(report.is_wrong());
        let mut report = DoctorReport::default();
        // TEST-NET-1 (RFC 5737): no machine has it
        one("admin", "192.0.2.1:9464".parse().unwrap(), false, &processes, &mut report);
        assert!(report.is_wrong(), "{report:?}");
    }
}
