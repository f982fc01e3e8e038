//! Whether the collectors take what they are sent: each gets an export without content, which OTLP has them answer with success.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::check::DoctorReport;
use crate::config::Config;
use lapwing_attribution::collector::{
    CollectorClient, CollectorOptions, Compression, Encoding, Error, ExportMessage, SendError, Signal, Transport,
};
use lapwing_net::{ClientIdentity, error_text};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn check(config: &Config, report: &mut DoctorReport) {
    let identity = ClientIdentity::load("tls.collector", &config.tls.collector).unwrap_or_default();
    if let Some(to) = config.otlp_forward.on() {
        let headers = config.otlp_forward_headers.clone();
        let options =
            CollectorOptions { headers, compression: Compression::None, timeout: TIMEOUT, identity: Arc::clone(&identity) };
        ask("otlp_forward", &to.to_string(), CollectorClient::new(to, options), Signal::Traces, report).await;
    }
    for (name, signal) in [("telemetry.metrics", Signal::Metrics), ("telemetry.traces", Signal::Traces)] {
        let Some(to) = config.telemetry.endpoint(signal) else { continue };
        let options = CollectorOptions { timeout: TIMEOUT, ..config.telemetry.options(&identity) };
        ask(name, &to.to_string(), CollectorClient::of_endpoint(&to, options), signal, report).await;
    }
}

async fn ask(name: &str, to: &str, client: Result<CollectorClient, Error>, signal: Signal, report: &mut DoctorReport) {
    let client = match client {
        Ok(client) => client,
        Err(error) => return report.wrong(name, format!("{to}: {error}"), "correct its address and headers"),
    };
    let nothing = ExportMessage { signal, encoding: Encoding::Protobuf, body: Bytes::new() };
    match client.send(&nothing).await {
        Ok(_) => report.ok(name, format!("{to} takes exports")),
        Err(SendError::Retryable { reason, .. }) => report.wrong(
            name,
            format!("{to} cannot be reached: {}", error_text(&reason)),
            "start the collector, or name where its OTLP receiver listens: gRPC (grpc://…) usually 4317, HTTP 4318",
        ),
        Err(SendError::Permanent(reason)) => report.wrong(
            name,
            format!("{to} refuses exports: {}", error_text(&reason)),
            "look at the headers (a token?), the path, and which signals the collector's pipelines have",
        ),
    }
}
