//! A fuzz target's bytes as a script: options in the first two bytes, then steps of a client and an upstream. Every input is a script.

/// Which peer does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Upstream,
}

/// How the proxy is configured, and what the client speaks first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaseOptions {
    bits: u8,
    /// Of how the ends are reached.
    ends: u8,
    /// No request is held, whatever the bits say.
    never_holds: bool,
}

impl CaseOptions {
    /// The same without holding.
    #[cfg(test)]
    pub(crate) const fn unheld(self) -> Self {
        Self { never_holds: true, ..self }
    }

    /// A client's connections begin with the preface of HTTP/2 and SETTINGS.
    pub(crate) const fn is_h2_client(self) -> bool {
        self.bits & 1 != 0
    }

    /// `upstream_protocol`: 0 and 3 are `auto`, 1 is `h1`, 2 is `h2`. With 3 there is another upstream, which refuses connections, and
    /// requests are held.
    pub(crate) const fn upstream_protocol(self) -> u8 {
        self.bits >> 1 & 3
    }

    /// The upstream is one of two, of which the other refuses connections.
    pub(crate) const fn has_absent_upstream(self) -> bool {
        self.upstream_protocol() == 3
    }

    /// Requests that name a model in their body are held until it is known: where there is another upstream.
    pub(crate) const fn is_holding(self) -> bool {
        self.has_absent_upstream() && !self.never_holds
    }

    /// Requests are amended, and responses rewritten.
    pub(crate) const fn is_amending(self) -> bool {
        self.bits & 8 != 0
    }

    /// Small limits: of a request's body, and of requests in flight.
    pub(crate) const fn is_limited(self) -> bool {
        self.bits & 16 != 0
    }

    /// Traces are made.
    pub(crate) const fn is_tracing(self) -> bool {
        self.bits & 32 != 0
    }

    /// Responses carry `Server-Timing`.
    pub(crate) const fn has_server_timing(self) -> bool {
        self.bits & 64 != 0
    }

    /// Clients speak TLS.
    pub(crate) const fn is_tls_listener(self) -> bool {
        self.ends & 1 != 0
    }

    /// Upstreams speak TLS.
    pub(crate) const fn is_tls_upstream(self) -> bool {
        self.ends & 2 != 0
    }

    /// There are two upstreams that accept connections, one after the other in turn.
    pub(crate) const fn has_two_upstreams(self) -> bool {
        self.ends & 4 != 0 && !self.has_absent_upstream()
    }

    /// What clients name in ALPN.
    pub(crate) const fn client_names(self) -> &'static [&'static str] {
        match (self.ends & 8 != 0, self.is_h2_client()) {
            (true, _) => &[],
            (false, true) => &["h2"],
            (false, false) => &["http/1.1"],
        }
    }

    /// What upstreams name in ALPN: both where only one of two versions is spoken to them.
    pub(crate) const fn upstream_names(self) -> &'static [&'static str] {
        match (self.ends >> 4 & 3, matches!(self.upstream_protocol(), 1 | 2)) {
            (1, false) => &["http/1.1"],
            (2, _) => &[],
            (3, false) => &["h2"],
            _ => &["h2", "http/1.1"],
        }
    }

    /// Over TLS, peers finish without a word.
    pub(crate) const fn is_rude(self) -> bool {
        self.ends & 64 != 0
    }

    /// The same with other ends.
    #[cfg(test)]
    pub(crate) const fn reached(self, ends: u8) -> Self {
        Self { ends, ..self }
    }

    /// The case runs a second time, every piece byte by byte.
    pub(crate) const fn is_compared(self) -> bool {
        self.bits & 128 != 0
    }
}

/// What a peer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerAction {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Sends what it sent last once more, this often.
    Repeat(u16),
    /// Ends its direction.
    Finish,
    /// Resets the connection.
    Reset,
    /// Stops taking bytes, or goes on.
    TogglePause,
    /// Goes on with another of its connections.
    Choose(u8),
}

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CaseStep {
    /// A peer acts.
    Peer(Side, PeerAction),
    /// Time passes, in milliseconds.
    Wait(u64),
    /// A client opens a further connection.
    Open,
    /// The upstream gives a plain answer; over HTTP/2 on this stream.
    Answer(u8),
    /// The upstream refuses connections, or accepts them again.
    ToggleRefuse,
}

/// A step, and how it is done.
#[derive(Clone, Debug)]
pub(crate) struct TimedStep {
    pub(crate) step: CaseStep,
    /// In how many pieces bytes are sent.
    pub(crate) pieces: usize,
    /// The next step follows before the proxy has run.
    pub(crate) is_hasty: bool,
}

/// A case.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) options: CaseOptions,
    pub(crate) steps: Vec<TimedStep>,
}

/// More steps than this are left out.
const MAX_STEPS: usize = 64;

impl Script {
    /// Reads a script. It cannot fail: what is missing at the end is zero or empty.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut bytes = Reader(bytes);
        let options = CaseOptions { bits: bytes.byte(), ends: bytes.byte(), never_holds: false };
        let mut steps = Vec::new();
        while !bytes.0.is_empty() && steps.len() < MAX_STEPS {
            let code = bytes.byte();
            let side = if code & 1 == 0 { Side::Client } else { Side::Upstream };
            let step = match code & 15 {
                0 | 1 => CaseStep::Peer(side, PeerAction::Send(bytes.block().to_vec())),
                2 | 3 => CaseStep::Peer(side, PeerAction::Send(bytes.frame())),
                4 | 5 => CaseStep::Peer(side, PeerAction::Repeat(1 << (bytes.byte() & 15))),
                6 | 7 => CaseStep::Peer(side, PeerAction::Finish),
                8 | 9 => CaseStep::Peer(side, PeerAction::Reset),
                10 | 11 => CaseStep::Peer(side, PeerAction::TogglePause),
                12 => CaseStep::Wait(wait_ms(bytes.byte())),
                13 => CaseStep::Open,
                14 => match bytes.byte() {
                    255 => CaseStep::ToggleRefuse,
                    which if which & 1 == 0 => CaseStep::Peer(Side::Client, PeerAction::Choose(which >> 1)),
                    which => CaseStep::Peer(Side::Upstream, PeerAction::Choose(which >> 1)),
                },
                _ => CaseStep::Answer(bytes.byte()),
            };
            steps.push(TimedStep { step, pieces: usize::from(code >> 4 & 7) + 1, is_hasty: code & 128 != 0 });
        }
        Self { options, steps }
    }

    /// Whether the same bytes must give the same messages however they are split: nothing but sending and answering, one thing
    /// after the other.
    pub(crate) fn is_plain(&self) -> bool {
        self.steps.iter().all(|timed| {
            let is_plain = matches!(timed.step, CaseStep::Peer(_, PeerAction::Send(_)) | CaseStep::Answer(_));
            is_plain && !timed.is_hasty
        })
    }
}

/// From a moment to longer than every timeout.
fn wait_ms(code: u8) -> u64 {
    [1, 10, 100, 500, 1_000, 2_500, 3_500, 6_000, 31_000, 61_000, 301_000, 601_000][usize::from(code % 12)]
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A length and as many bytes, as far as there are any. The length is one byte; its highest values stand for 256 to 4096.
    fn block(&mut self) -> &'a [u8] {
        let length = match usize::from(self.byte()) {
            length @ 0..240 => length,
            length => (length - 239) * 256,
        };
        let (block, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        block
    }

    /// A frame of HTTP/2: type, flags, stream, payload. The length is right.
    fn frame(&mut self) -> Vec<u8> {
        let (kind, flags, stream) = (self.byte(), self.byte(), self.byte());
        frame(kind, flags, u32::from(stream), self.block())
    }
}

/// A frame of HTTP/2 (RFC 9113, 4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
