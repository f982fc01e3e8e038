//! The loop with a terminal: readings, keys and signals change the state, and each change is drawn.
//!
//! Whatever ends the loop, the terminal is restored; after a panic by the hook that `ratatui::try_init` sets.

use std::future::pending;
use std::io;
use std::pin::Pin;

use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use ratatui::DefaultTerminal;
use tokio::sync::mpsc;

use super::args::TopArgs;
use super::draw;
use super::feed::{self, Reading};
use super::signals::Signals;
use super::slowest::{self, SlowRequest};
use super::state::{Effect, TopState};

/// A request for the slowest requests, if there is one under way.
type Fetch = Option<Pin<Box<dyn Future<Output = Result<Vec<SlowRequest>, String>>>>>;

/// Shows the view until a key or a signal ends it. Returns the exit code.
///
/// # Errors
///
/// If the terminal cannot be set up, drawn to or read.
pub(crate) async fn show(args: &TopArgs, signals: Signals) -> io::Result<u8> {
    let mut terminal = ratatui::try_init()?;
    let ended = watch(args, signals, &mut terminal).await;
    let restored = ratatui::try_restore();
    ended.and_then(|code| restored.map(|()| code))
}

async fn watch(args: &TopArgs, mut signals: Signals, terminal: &mut DefaultTerminal) -> io::Result<u8> {
    let (sender, mut readings) = mpsc::channel::<Reading>(1);
    let path = args.path();
    let mut feed = std::pin::pin!(feed::follow(&args.admin, &path, sender));
    let (mut keys, mut state, mut fetch) = (EventStream::new(), TopState::default(), Fetch::None);
    let client = args.admin.client();
    loop {
        terminal.draw(|frame| draw::view(frame, &mut state, args.admin.address()))?;
        tokio::select! {
            code = signals.first() => return Ok(code),
            // it follows for as long as its readings are received
            () = &mut feed => return Ok(0),
            Some(reading) = readings.recv() => state.take(reading),
            fetched = fetched(&mut fetch) => {
                fetch = None;
                state.take_requests(fetched);
            }
            event = keys.next() => match event {
                // the terminal has gone
                None => return Ok(128 + 1),
                Some(Err(error)) => return Err(error),
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => match state.press(key) {
                    Effect::None => {}
                    Effect::Quit => return Ok(0),
                    Effect::Fetch(names) => fetch = Some(Box::pin(slowest::fetch(client.clone(), names))),
                },
                // the next drawing fits another size
                Some(Ok(_)) => {}
            },
        }
    }
}

async fn fetched(fetch: &mut Fetch) -> Result<Vec<SlowRequest>, String> {
    match fetch {
        Some(fetch) => fetch.await,
        None => pending().await,
    }
}
