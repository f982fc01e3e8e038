//! Plays a script's client and upstream against a proxy.

use std::time::Duration;

use super::messages::PREFACE;
use super::script::{CaseStep, PeerAction, Script, Side, TimedStep, frame};
use lapwing_net::memory::{MemoryAddress, MemoryConnector, MemoryPeer};

/// More connections of clients than this are not opened.
const MAX_CLIENTS: usize = 4;
/// More bytes than this are not sent by repeating.
const MAX_REPEATED: usize = 1 << 20;

/// Of how many pieces a split block is. Each takes a millisecond, and idle connections to the upstream are kept for 3 s.
const MANY_PIECES: usize = 64;

const SETTINGS: u8 = 4;
const ACK: u8 = 1;

/// What the upstream answers over HTTP/1.1 if it is asked for a plain answer.
pub(crate) const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A peer of the proxy on one connection.
#[derive(Debug)]
pub(crate) struct PlayedPeer {
    pub(crate) pipe: MemoryPeer,
    pub(crate) is_h2: bool,
    last: Vec<u8>,
}

/// Both peers.
#[derive(Debug)]
pub(crate) struct Player {
    connector: MemoryConnector,
    pub(crate) address: MemoryAddress,
    pub(crate) clients: Vec<PlayedPeer>,
    pub(crate) upstreams: Vec<PlayedPeer>,
    chosen: [usize; 2],
    repeated: usize,
}

/// Lets the proxy run until it waits, for a peer or for time. The runtime's clock stands still and moves only when nothing else can
/// happen.
pub(crate) async fn run_until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

impl Player {
    pub(crate) fn new(connector: MemoryConnector, address: MemoryAddress) -> Self {
        Self { connector, address, clients: Vec::new(), upstreams: Vec::new(), chosen: [0; 2], repeated: 0 }
    }

    /// Plays `script`; with `is_split`, everything in as many pieces as there are. Calls `after` after every step.
    pub(crate) async fn play(
        &mut self,
        script: &Script,
        is_split: bool,
        mut after: impl FnMut(&Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.open(script.options.is_h2_client()).await;
        for timed in &script.steps {
            let pieces = if is_split { MANY_PIECES } else { timed.pieces };
            self.step(timed, pieces, script.options.is_h2_client()).await;
            if !timed.is_hasty {
                self.rest().await;
            }
            after(self)?;
        }
        Ok(())
    }

    /// Lets the proxy run, and greets where it connected.
    pub(crate) async fn rest(&mut self) {
        run_until_idle().await;
        let (connected, looks): (Vec<_>, Vec<_>) = self.address.accept().into_iter().partition(is_for_requests);
        if !looks.is_empty() {
            looks.iter().for_each(MemoryPeer::reset);
            run_until_idle().await;
        }
        if connected.is_empty() {
            return;
        }
        for pipe in connected {
            let is_h2 = pipe.has_received(PREFACE);
            if is_h2 {
                pipe.send(&[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat());
            }
            self.upstreams.push(PlayedPeer { pipe, is_h2, last: Vec::new() });
        }
        self.chosen[1] = self.upstreams.len() - 1;
        run_until_idle().await;
    }

    /// Opens a client's connection.
    pub(crate) async fn open(&mut self, is_h2: bool) {
        let pipe = self.connector.connect();
        if is_h2 {
            pipe.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
            run_until_idle().await;
            pipe.send(&frame(SETTINGS, ACK, 0, &[]));
        }
        self.clients.push(PlayedPeer { pipe, is_h2, last: Vec::new() });
        self.chosen[0] = self.clients.len() - 1;
        run_until_idle().await;
    }

    async fn step(&mut self, timed: &TimedStep, pieces: usize, is_h2: bool) {
        match &timed.step {
            CaseStep::Peer(side, action) => self.act(*side, action, pieces).await,
            CaseStep::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            CaseStep::Open if self.clients.len() < MAX_CLIENTS => self.open(is_h2).await,
            CaseStep::Open => {}
            CaseStep::Answer(stream) => {
                let Some(peer) = self.peer(Side::Upstream) else { return };
                let answer = plain_answer(peer, *stream);
                self.send(Side::Upstream, &answer, pieces).await;
            }
            CaseStep::ToggleRefuse => self.address.refuse(!self.address.is_refusing()),
        }
    }

    fn peer(&mut self, side: Side) -> Option<&mut PlayedPeer> {
        match side {
            Side::Client => self.clients.get_mut(self.chosen[0]),
            Side::Upstream => self.upstreams.get_mut(self.chosen[1]),
        }
    }

    async fn act(&mut self, side: Side, action: &PeerAction, pieces: usize) {
        if let PeerAction::Send(bytes) = action {
            return self.send(side, bytes, pieces).await;
        }
        let left = MAX_REPEATED - self.repeated;
        let count = [self.clients.len(), self.upstreams.len()][side as usize];
        if let PeerAction::Choose(which) = action {
            self.chosen[side as usize] = usize::from(*which) % count.max(1);
        }
        let Some(peer) = self.peer(side) else { return };
        match action {
            PeerAction::Repeat(times) if !peer.last.is_empty() => {
                let bytes = peer.last.repeat(usize::from(*times).min(left / peer.last.len()));
                peer.pipe.send(&bytes);
                self.repeated += bytes.len();
            }
            PeerAction::Finish => peer.pipe.finish(),
            PeerAction::Reset => peer.pipe.reset(),
            PeerAction::TogglePause => peer.pipe.pause(!peer.pipe.is_paused()),
            _ => {}
        }
    }

    async fn send(&mut self, side: Side, bytes: &[u8], pieces: usize) {
        let Some(peer) = self.peer(side) else { return };
        peer.last = bytes.to_vec();
        for (i, piece) in bytes.chunks(bytes.len().div_ceil(pieces).max(1)).enumerate() {
            if i > 0 {
                run_until_idle().await;
            }
            peer.pipe.send(piece);
        }
    }

    /// All peers' bytes: sent to the proxy, and written by it.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let all = || self.clients.iter().chain(&self.upstreams);
        (all().map(|peer| peer.pipe.sent_bytes()).sum(), all().map(|peer| peer.pipe.received_bytes()).sum())
    }

    /// Both peers go, without a word.
    pub(crate) async fn leave(&mut self) {
        self.rest().await;
        self.clients.iter().chain(&self.upstreams).for_each(|peer| peer.pipe.reset());
        run_until_idle().await;
        // what was connected meanwhile
        self.address.accept().into_iter().for_each(|peer| peer.reset());
        run_until_idle().await;
    }
}

/// Whether a connection is for requests: not one that only looked whether there is an upstream, or asked what it speaks.
fn is_for_requests(peer: &MemoryPeer) -> bool {
    let received = peer.received();
    let is_look = received.is_empty() && peer.is_closed();
    let is_question = received == [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat() || received.starts_with(b"OPTIONS * ");
    !is_look && !is_question && !received.starts_with(&[22, 3])
}

/// A plain answer to the request on `stream`: 200, `ok`.
pub(crate) fn plain_answer(peer: &PlayedPeer, stream: u8) -> Vec<u8> {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    /// `:status: 200` in HPACK's static table.
    const OK: u8 = 0x88;
    if peer.is_h2 {
        let stream = u32::from(stream);
        [frame(HEADERS, 4, stream, &[OK]), frame(DATA, 1, stream, b"ok")].concat()
    } else {
        PLAIN_ANSWER.to_vec()
    }
}
