//! Whether the stores that the model server calls through Lapwing take connections.

use std::time::Duration;

use super::check::DoctorReport;
use crate::app::outbound::target;
use crate::config::Config;
use lapwing_net::{ClientIdentity, error_text};
use lapwing_settings::DownstreamScheme;

/// How long a connection may take.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn check(config: &Config, report: &mut DoctorReport) {
    for (at, one) in config.downstreams.iter().enumerate() {
        let (name, section) = (format!("downstreams[{at}]"), format!("downstreams[{at}].tls"));
        let tls = one.tls.clone().unwrap_or_default();
        // a file that cannot be read is a fault of the configuration, and told there
        let identity = ClientIdentity::load(&section, &tls).unwrap_or_default();
        match target(&one.to, &identity).probe(TIMEOUT).await {
            Ok(()) => report.ok(name, format!("{} takes connections; the server's client goes to {}", one.to, one.listen)),
            Err(error) => {
                let is_tls = one.to.scheme().is_some_and(DownstreamScheme::is_tls);
                let more = if is_tls {
                    format!(", see whether its certificate is valid and {section}.ca has its authority")
                } else {
                    String::new()
                };
                report.wrong(
                    &name,
                    format!("{} takes no connection: {}", one.to, error_text(&error)),
                    format!("start it{more}, or set {name}.to to where it listens; the server's calls fail until then"),
                );
            }
        }
    }
}
