//! Reads `/stats/stream` (server-sent events) for as long as the command runs: when it breaks off, the reason is reported once, and
//! it is requested again each second.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};

use crate::admin_client::{AdminArgs, AdminClient};
use crate::stats::{self, Stats};
use lapwing_net::{Body, ClientLimits};
use lapwing_protocol::wire::{SsePiece, SseReader};

/// The largest event, in bytes: the largest answer of `/stats`.
const MAX_EVENT: usize = 64 << 20;
/// Between the events of a Lapwing that lives there is a second; without one for this long it does not answer.
const SILENCE: Duration = Duration::from_secs(5);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// What was read.
#[derive(Debug)]
pub(crate) enum Reading {
    /// The latest figures.
    Figures(Box<Stats>),
    /// There are none, and why: address and reason, in one line.
    Lost(String),
}

/// Sends what is read to `readings` until its receiver is gone.
pub(crate) async fn follow(admin: &AdminArgs, path: &str, readings: Sender<Reading>) {
    let limits = ClientLimits { timeout: Duration::MAX, max_body: usize::MAX, max_idle: 0, ..ClientLimits::default() };
    let client = admin.client_with(limits);
    while !readings.is_closed() {
        let Err(reason) = read(&client, path, &readings).await;
        if readings.send(Reading::Lost(reason)).await.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Reads one stream, and returns why it ended.
async fn read(client: &AdminClient, path: &str, readings: &Sender<Reading>) -> Result<std::convert::Infallible, String> {
    let named = |reason: &str| format!("{}: {reason}", client.address());
    let silent = || named(&format!("no figures for {} s", SILENCE.as_secs()));
    let response = timeout(SILENCE, client.send(Request::get(path))).await.map_err(|_| silent())??;
    let (mut body, mut reader, mut event) = (response.into_body(), SseReader::new(), Vec::new());
    loop {
        let events = timeout(SILENCE, next(&mut body, &mut reader, &mut event)).await.map_err(|_| silent())?;
        for event in events.map_err(|reason| named(&reason))? {
            let stats = stats::read(&event).map_err(|reason| named(&reason))?;
            if readings.send(Reading::Figures(Box::new(stats))).await.is_err() {
                return Err(named("nobody reads"));
            }
        }
    }
}

/// The next events, at least one; `rest` keeps what has come of the one after them.
async fn next(body: &mut Body, reader: &mut SseReader, rest: &mut Vec<u8>) -> Result<Vec<Vec<u8>>, String> {
    let mut events = Vec::new();
    while events.is_empty() {
        let frame = body.frame().await.ok_or("the stream ended; is it shutting down?")?;
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        reader.feed(&data, &mut |piece| match piece {
            SsePiece::Data(data) => rest.extend_from_slice(data),
            SsePiece::End => events.push(std::mem::take(rest)),
            SsePiece::Name(_) | SsePiece::Error => {}
        });
        if rest.len() > MAX_EVENT {
            return Err(format!("an event has more than {MAX_EVENT} bytes"));
        }
    }
    Ok(events)
}
