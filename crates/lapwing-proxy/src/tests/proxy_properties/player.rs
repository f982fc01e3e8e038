//! Plays a script's client and upstream against a proxy.

use std::time::Duration;

use super::messages::PREFACE;
use super::script::{CaseStep, PeerAction, Script, Side, TimedStep, frame};
use lapwing_net::memory::{MemoryAddress, MemoryConnector};
use lapwing_net::memory_tls::{MemoryEnd, MemoryTls};

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
    pub(crate) pipe: MemoryEnd,
    pub(crate) is_h2: bool,
    last: Vec<u8>,
    /// How much it had received when it was last looked at.
    seen: usize,
}

impl PlayedPeer {
    const fn new(pipe: MemoryEnd, is_h2: bool) -> Self {
        Self { pipe, is_h2, last: Vec::new(), seen: 0 }
    }
}

/// How both ends are reached.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) connector: MemoryConnector,
    /// Of every upstream.
    pub(crate) addresses: Vec<MemoryAddress>,
    /// Where clients speak TLS.
    pub(crate) listener: Option<MemoryTls>,
    /// Where upstreams do.
    pub(crate) upstream: Option<MemoryTls>,
    pub(crate) is_rude: bool,
}

/// Both peers.
#[derive(Debug)]
pub(crate) struct Player {
    reached: Reached,
    /// Connections of the proxy that have sent nothing yet: they may be looks, or make their handshakes.
    connected: Vec<MemoryEnd>,
    pub(crate) clients: Vec<PlayedPeer>,
    pub(crate) upstreams: Vec<PlayedPeer>,
    chosen: [usize; 2],
    repeated: usize,
}

/// More often than this the proxy does not connect before the next step.
const MAX_CONNECTS: usize = 8;
/// More turns than this are not made at once: a handshake takes three.
const MAX_TURNS: usize = 16;

/// Lets the proxy run until it waits, for a peer or for time. The runtime's clock stands still and moves only when nothing else can
/// happen.
async fn run_until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

impl Player {
    pub(crate) fn new(reached: Reached) -> Self {
        let (connected, clients, upstreams) = Default::default();
        Self { reached, connected, clients, upstreams, chosen: [0; 2], repeated: 0 }
    }

    /// The upstream that may refuse connections.
    pub(crate) fn address(&self) -> &MemoryAddress {
        &self.reached.addresses[0]
    }

    /// What a peer was sent is no TLS.
    fn check_sessions(&self) -> Result<(), String> {
        let all = self.clients.iter().chain(&self.upstreams).map(|peer| &peer.pipe).chain(&self.connected);
        // no version may be there that both speak, which only a handshake finds out
        let mut faults = all.filter_map(MemoryEnd::fault).filter(|fault| !fault.contains("no known protocols"));
        faults.next().map_or(Ok(()), |fault| Err(format!("a peer got what is not TLS: {fault}")))
    }

    /// Lets the proxy run until it waits, and the peers' sessions answer.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..MAX_TURNS {
            run_until_idle().await;
            let peers = self.clients.iter_mut().chain(&mut self.upstreams).map(|peer| &mut peer.pipe);
            if peers.chain(&mut self.connected).filter_map(|end| end.turn().then_some(())).count() == 0 {
                return;
            }
        }
    }

    /// Takes the connections that the proxy made.
    fn accept(&mut self) -> Result<(), String> {
        for peer in self.reached.addresses.iter().flat_map(MemoryAddress::accept) {
            let end = match &self.reached.upstream {
                Some(tls) => MemoryEnd::server(peer, tls)?,
                None => peer.into(),
            };
            self.connected.push(end);
        }
        Ok(())
    }

    /// Plays `script`; with `is_split`, everything in as many pieces as there are. Calls `after` after every step.
    pub(crate) async fn play(
        &mut self,
        script: &Script,
        is_split: bool,
        mut after: impl FnMut(&Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.open(script.options.is_h2_client()).await?;
        for timed in &script.steps {
            let pieces = if is_split { MANY_PIECES } else { timed.pieces };
            self.step(timed, pieces, script.options.is_h2_client()).await?;
            if !timed.is_hasty {
                self.rest().await?;
            }
            self.check_sessions()?;
            after(self)?;
        }
        Ok(())
    }

    /// Lets the proxy run, and greets where it connected.
    pub(crate) async fn rest(&mut self) -> Result<(), String> {
        // over TLS, a handshake may tell it to connect once more
        let times = if self.reached.upstream.is_some() { MAX_CONNECTS } else { 1 };
        for _ in 0..times {
            self.settle().await;
            self.accept()?;
            if self.connected.is_empty() {
                break;
            }
            self.greet_connected().await;
        }
        if self.reached.addresses.len() > 1 {
            // the next answer is that of the upstream that was asked last
            for (at, peer) in self.upstreams.iter_mut().enumerate() {
                if peer.pipe.received_bytes() > std::mem::replace(&mut peer.seen, peer.pipe.received_bytes()) {
                    self.chosen[1] = at;
                }
            }
        }
        Ok(())
    }

    async fn greet_connected(&mut self) {
        if self.reached.upstream.is_some() {
            self.settle().await;
        }
        let (connected, looks): (Vec<_>, Vec<_>) = std::mem::take(&mut self.connected).into_iter().partition(is_for_requests);
        if !looks.is_empty() {
            looks.iter().for_each(|look| look.peer().reset());
            self.settle().await;
        }
        if connected.is_empty() {
            return;
        }
        for mut pipe in connected {
            let is_h2 = pipe.has_received(PREFACE);
            if is_h2 {
                pipe.send(&[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat());
            }
            self.upstreams.push(PlayedPeer::new(pipe, is_h2));
        }
        self.chosen[1] = self.upstreams.len() - 1;
        self.settle().await;
    }

    /// Opens a client's connection.
    pub(crate) async fn open(&mut self, is_h2: bool) -> Result<(), String> {
        let peer = self.reached.connector.connect();
        let pipe = match &self.reached.listener {
            Some(tls) => MemoryEnd::client(peer, tls)?,
            None => peer.into(),
        };
        self.clients.push(PlayedPeer::new(pipe, is_h2));
        self.chosen[0] = self.clients.len() - 1;
        if self.reached.listener.is_some() {
            self.settle().await;
        }
        if is_h2 {
            self.greet(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
            self.settle().await;
            self.greet(&frame(SETTINGS, ACK, 0, &[]));
        }
        self.settle().await;
        Ok(())
    }

    fn greet(&mut self, bytes: &[u8]) {
        if let Some(client) = self.clients.last_mut() {
            client.pipe.send(bytes);
        }
    }

    async fn step(&mut self, timed: &TimedStep, pieces: usize, is_h2: bool) -> Result<(), String> {
        match &timed.step {
            CaseStep::Peer(side, action) => self.act(*side, action, pieces).await,
            CaseStep::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            CaseStep::Open if self.clients.len() < MAX_CLIENTS => self.open(is_h2).await?,
            CaseStep::Open => {}
            CaseStep::Answer(stream) => {
                let Some(peer) = self.peer(Side::Upstream) else { return Ok(()) };
                let answer = plain_answer(peer, *stream);
                self.send(Side::Upstream, &answer, pieces).await;
            }
            CaseStep::ToggleRefuse => self.address().refuse(!self.address().is_refusing()),
        }
        Ok(())
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
        let is_rude = self.reached.is_rude;
        let Some(peer) = self.peer(side) else { return };
        match action {
            PeerAction::Repeat(times) if !peer.last.is_empty() => {
                let bytes = peer.last.repeat(usize::from(*times).min(left / peer.last.len()));
                peer.pipe.send(&bytes);
                self.repeated += bytes.len();
            }
            PeerAction::Finish => peer.pipe.finish(is_rude),
            PeerAction::Reset => peer.pipe.peer().reset(),
            PeerAction::TogglePause => peer.pipe.peer().pause(!peer.pipe.peer().is_paused()),
            _ => {}
        }
    }

    async fn send(&mut self, side: Side, bytes: &[u8], pieces: usize) {
        let Some(peer) = self.peer(side) else { return };
        peer.last = bytes.to_vec();
        let sealed = peer.pipe.sealed(bytes);
        for (i, piece) in sealed.chunks(sealed.len().div_ceil(pieces).max(1)).enumerate() {
            if i > 0 {
                run_until_idle().await;
            }
            if let Some(peer) = self.peer(side) {
                peer.pipe.peer().send(piece);
            }
        }
    }

    /// All peers' bytes: sent to the proxy, and written by it.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let all = || self.clients.iter().chain(&self.upstreams);
        (all().map(|peer| peer.pipe.peer().sent_bytes()).sum(), all().map(|peer| peer.pipe.peer().received_bytes()).sum())
    }

    /// Both peers go, without a word.
    pub(crate) async fn leave(&mut self) -> Result<(), String> {
        // over TLS, a look at what resets its connections is a handshake: it is made, for they are there
        for _ in 0..=usize::from(self.reached.upstream.is_some()) {
            self.rest().await?;
            self.clients.iter().chain(&self.upstreams).for_each(|peer| peer.pipe.peer().reset());
            run_until_idle().await;
        }
        // what was connected meanwhile
        self.reached.addresses.iter().flat_map(MemoryAddress::accept).for_each(|peer| peer.reset());
        run_until_idle().await;
        Ok(())
    }
}

/// Whether a connection is for requests: not one that only looked whether there is an upstream, or asked what it speaks.
fn is_for_requests(end: &MemoryEnd) -> bool {
    let received = end.received();
    let is_look = received.is_empty() && (end.peer().is_closed() || end.fault().is_some());
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
