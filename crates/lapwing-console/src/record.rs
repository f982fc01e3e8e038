//! `lapwing record`: asks a running Lapwing for sampled requests, and writes them to a file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::Request;
use http_body_util::BodyExt;

use crate::admin_client::{AdminArgs, UNAVAILABLE, block_on};
use lapwing_net::ClientLimits;
use lapwing_settings::{Period, Share, Size};
use lapwing_shadow::ShadowDrop;
use lapwing_shadow::recording::{RecordingEnd, RecordingLine};

/// What is recorded, where it is asked for, and where it is written.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct RecordArgs {
    /// The file that is written; it must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The share of requests that is recorded
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    sample: Share,
    /// How long
    #[arg(long = "for", value_name = "PERIOD", default_value = "10m")]
    duration: Period,
    /// At most so many requests
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    max_requests: u64,
    /// At most about so many bytes
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    max_size: Size,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Why requests are not recorded whose route could be named.
const REFUSALS: [ShadowDrop; 4] = [ShadowDrop::UnknownRoute, ShadowDrop::Session, ShadowDrop::NotRecognised, ShadowDrop::Effect];

/// What became of a recording.
struct Written {
    bytes: u64,
    end: Option<RecordingEnd>,
}

/// Runs the command. Returns the exit code.
pub fn run(args: &RecordArgs) -> u8 {
    match record(args) {
        Ok(Written { bytes, end: Some(end) }) => {
            let dropped: Vec<String> = end.dropped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            let mut dropped = if dropped.is_empty() { String::new() } else { format!("; dropped: {}", dropped.join(", ")) };
            if end.accounts_lost > 0 {
                dropped += &format!("; {} accounts of requests were lost", end.accounts_lost);
            }
            let is_refused = REFUSALS.iter().any(|reason| end.dropped.contains_key(reason.name()));
            if is_refused {
                dropped += "; only recognised calls of a model are recorded: name further routes in shadow.routes if they are safe to repeat";
            }
            let (requests, seconds) = (end.requests, Duration::from_nanos(end.duration_ns).as_secs());
            println!("{}: {requests} requests, {bytes} bytes, {seconds} s, ended by {}{dropped}", args.out.display(), end.reason);
            0
        }
        Ok(Written { bytes, end: None }) => {
            eprintln!("lapwing record: {}: broke off after {bytes} bytes; what is there can be replayed", args.out.display());
            UNAVAILABLE
        }
        Err(reason) => {
            eprintln!("lapwing record: {reason}");
            UNAVAILABLE
        }
    }
}

fn record(args: &RecordArgs) -> Result<Written, String> {
    block_on(async {
        let timeout = args.duration.get() + Duration::from_secs(60);
        let limits = ClientLimits { timeout, max_body: usize::MAX, ..ClientLimits::default() };
        let client = args.admin.client_with(limits);
        let share = args.sample.get();
        let (duration, requests, size) = (args.duration, args.max_requests, args.max_size.get());
        let path = format!("/record?sample={share}&for={duration}&max_requests={requests}&max_size={size}");
        let response = client.send(Request::post(path)).await?;
        let file = create(&args.out).map_err(|error| format!("{}: {error}", args.out.display()))?;
        write(response.into_body(), file).await.map_err(|error| format!("{}: {error}", args.out.display()))
    })
}

/// Creates the file, for its owner only: it has what users sent.
fn create(path: &Path) -> io::Result<BufWriter<File>> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(BufWriter::new)
}

/// Writes whole lines until the body ends, or the user interrupts.
async fn write(body: lapwing_net::Body, mut file: impl Write) -> io::Result<Written> {
    let mut body = pin!(body);
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let (mut line, mut last, mut bytes) = (Vec::new(), Vec::new(), 0);
    loop {
        let data: Option<Bytes> = tokio::select! {
            _ = &mut interrupted => None,
            frame = body.frame() => frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok()),
        };
        let Some(data) = data else { break };
        line.extend_from_slice(&data);
        while let Some(at) = line.iter().position(|byte| *byte == b'\n') {
            let rest = line.split_off(at + 1);
            file.write_all(&line)?;
            bytes += line.len() as u64;
            last = std::mem::replace(&mut line, rest);
        }
    }
    file.flush()?;
    let end = match serde_json::from_slice(&last) {
        Ok(RecordingLine::End(end)) => Some(end),
        _ => None,
    };
    Ok(Written { bytes, end })
}
