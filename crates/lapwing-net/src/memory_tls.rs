//! The other end of a connection in memory, in cleartext or over TLS: by rustls without a stream, driven by hand as a [`MemoryPeer`] is. What is
//! sent and received is text.

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::ServerSessionMemoryCache;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};

use super::memory::MemoryPeer;
use super::target::TlsTo;
use super::tls::{ClientIdentity, ServerIdentity, provider};
use lapwing_settings::{ClientTls, File, ServerTls, Switch};

/// What went wrong, in words.
type Fault = String;

fn fault(error: impl std::fmt::Display) -> Fault {
    error.to_string()
}

/// An authority and a certificate for `localhost`, as Lapwing's own ends have them, and as the other ends do.
struct Made {
    listener: Arc<ServerIdentity>,
    upstream: Arc<ClientIdentity>,
    client: ClientConfig,
    server: ServerConfig,
}

/// Once for all cases: they take milliseconds.
static MADE: LazyLock<Result<Made, Fault>> = LazyLock::new(Made::new);

impl Made {
    fn new() -> Result<Self, Fault> {
        let mut params = CertificateParams::new(Vec::new()).map_err(fault)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(fault)?;
        let authority = params.self_signed(&key).map_err(fault)?;
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().map_err(fault)?;
        let params = CertificateParams::new(vec!["localhost".to_owned()]).map_err(fault)?;
        let certificate = params.signed_by(&key, &issuer).map_err(fault)?;

        let folder = tempfile::tempdir().map_err(fault)?;
        let file = |name: &str, pem: String| -> Result<Switch<File>, Fault> {
            let path = folder.path().join(name);
            std::fs::write(&path, pem).map_err(fault)?;
            path.display().to_string().parse().map(Switch::On).map_err(fault)
        };
        let shown = ServerTls {
            certificate: file("s.pem", certificate.pem())?,
            key: file("s.key", key.serialize_pem())?,
            client_ca: Switch::Off,
        };
        let trusted = ClientTls { ca: file("ca.pem", authority.pem())?, ..ClientTls::default() };
        let listener = ServerIdentity::load("tls.listen", &shown).map_err(fault)?.ok_or("no certificate")?;
        let upstream = ClientIdentity::load("tls.upstream", &trusted).map_err(fault)?;

        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).map_err(fault)?;
        let client = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(fault)?;
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(fault)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(fault)?;
        let server = server.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).map_err(fault)?;
        Ok(Self { listener, upstream, client, server })
    }
}

/// Both ends of TLS in a case: sessions are resumed within it only.
#[derive(Clone, Debug)]
pub struct MemoryTls {
    /// What Lapwing's listener shows.
    pub listener: Arc<ServerIdentity>,
    /// Whom Lapwing trusts.
    pub upstream: TlsTo,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl MemoryTls {
    /// Its clients and servers name these protocols (ALPN).
    ///
    /// # Errors
    ///
    /// If no certificate can be made.
    pub fn new(client_names: &[&str], server_names: &[&str]) -> Result<Self, Fault> {
        let made = MADE.as_ref().map_err(Clone::clone)?;
        let named = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let (mut client, mut server) = (made.client.clone(), made.server.clone());
        client.alpn_protocols = named(client_names);
        client.resumption = rustls::client::Resumption::in_memory_sessions(8);
        server.alpn_protocols = named(server_names);
        server.session_storage = ServerSessionMemoryCache::new(8);
        let (listener, upstream) = (made.listener.clone(), TlsTo(made.upstream.clone()));
        Ok(Self { listener, upstream, client: Arc::new(client), server: Arc::new(server) })
    }
}

/// An end of a connection in memory.
#[derive(Debug)]
pub struct MemoryEnd {
    peer: MemoryPeer,
    session: Option<Session>,
}

#[derive(Debug)]
struct Session {
    connection: Connection,
    /// How many of the bytes that Lapwing wrote are read.
    read: usize,
    sent: Vec<u8>,
    received: Vec<u8>,
    /// Lapwing said that it sends no more (`close_notify`).
    is_ended: bool,
    /// This end did.
    has_ended: bool,
    fault: Option<Fault>,
}

impl From<MemoryPeer> for MemoryEnd {
    fn from(peer: MemoryPeer) -> Self {
        Self { peer, session: None }
    }
}

impl MemoryEnd {
    /// A client over TLS.
    ///
    /// # Errors
    ///
    /// If there is no session.
    pub fn client(peer: MemoryPeer, tls: &MemoryTls) -> Result<Self, Fault> {
        let name = ServerName::try_from("localhost").map_err(fault)?;
        let connection = ClientConnection::new(tls.client.clone(), name).map_err(fault)?;
        Ok(Self::over(peer, Connection::Client(connection)))
    }

    /// A server over TLS.
    ///
    /// # Errors
    ///
    /// If there is no session.
    pub fn server(peer: MemoryPeer, tls: &MemoryTls) -> Result<Self, Fault> {
        let connection = ServerConnection::new(tls.server.clone()).map_err(fault)?;
        Ok(Self::over(peer, Connection::Server(connection)))
    }

    fn over(peer: MemoryPeer, mut connection: Connection) -> Self {
        connection.set_buffer_limit(None);
        let (sent, received) = Default::default();
        Self {
            peer,
            session: Some(Session { connection, read: 0, sent, received, is_ended: false, has_ended: false, fault: None }),
        }
    }

    /// The connection itself.
    #[must_use]
    pub const fn peer(&self) -> &MemoryPeer {
        &self.peer
    }

    /// What is wrong with what Lapwing wrote of TLS.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.session.as_ref()?.fault.as_deref()
    }

    /// Reads what Lapwing wrote, and answers what the session itself has to. Returns whether anything came or went.
    pub fn turn(&mut self) -> bool {
        let Self { peer, session: Some(session) } = self else { return false };
        let came = peer.received_from(session.read);
        session.read += came.len();
        if let Err(error) = session.pass(&came) {
            session.fault.get_or_insert(error);
        }
        let answer = session.written();
        peer.send(&answer);
        !came.is_empty() || !answer.is_empty()
    }

    /// The bytes that have to be sent for `text`; none while the handshake is not made.
    #[must_use]
    pub fn sealed(&mut self, text: &[u8]) -> Vec<u8> {
        let Self { peer, session: Some(session) } = self else { return text.to_vec() };
        if peer.is_finished() || peer.is_reset() || session.connection.writer().write_all(text).is_err() {
            return Vec::new();
        }
        session.sent.extend_from_slice(text);
        session.written()
    }

    /// Sends `text`, unless it has finished.
    pub fn send(&mut self, text: &[u8]) {
        let sealed = self.sealed(text);
        self.peer.send(&sealed);
    }

    /// Sends no more. Over TLS it says so before its end, unless it `is_rude`.
    pub fn finish(&mut self, is_rude: bool) {
        if let Some(session) = &mut self.session
            && !is_rude
            && !self.peer.is_finished()
        {
            session.has_ended = true;
            session.connection.send_close_notify();
            let said = session.written();
            self.peer.send(&said);
        }
        self.peer.finish();
    }

    /// Whether it said that it sends no more: without TLS, whether it finished.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.as_ref().map_or_else(|| self.peer.is_finished(), |session| session.has_ended)
    }

    /// Whether Lapwing said that it sends no more: without TLS, whether it ended its direction.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.session.as_ref().map_or_else(|| self.peer.is_closed(), |session| session.is_ended)
    }

    /// The text that it sent.
    #[must_use]
    pub fn sent(&self) -> Vec<u8> {
        self.session.as_ref().map_or_else(|| self.peer.sent(), |session| session.sent.clone())
    }

    /// The text that Lapwing wrote to it.
    #[must_use]
    pub fn received(&self) -> Vec<u8> {
        self.session.as_ref().map_or_else(|| self.peer.received(), |session| session.received.clone())
    }

    /// How many bytes of text Lapwing wrote to it.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        self.session.as_ref().map_or_else(|| self.peer.received_bytes(), |session| session.received.len())
    }

    /// Whether the text that Lapwing wrote to it begins with `text`.
    #[must_use]
    pub fn has_received(&self, text: &[u8]) -> bool {
        self.session.as_ref().map_or_else(|| self.peer.has_received(text), |session| session.received.starts_with(text))
    }
}

impl Session {
    fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        if self.fault.is_some() {
            return Ok(());
        }
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes).map_err(fault)?;
            let state = self.connection.process_new_packets().map_err(fault)?;
            let mut text = vec![0; state.plaintext_bytes_to_read()];
            self.connection.reader().read_exact(&mut text).map_err(fault)?;
            if self.is_ended && !text.is_empty() {
                return Err("text after the end".to_owned());
            }
            self.received.extend_from_slice(&text);
            self.is_ended |= state.peer_has_closed();
        }
        Ok(())
    }

    fn written(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.connection.wants_write() && self.connection.write_tls(&mut bytes).is_ok() {}
        bytes
    }
}
