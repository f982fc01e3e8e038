//! Both ends of TLS against one another: bytes, versions, tickets, stamps, who is refused, files that change.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Version;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::*;
use crate::{BoundListener, ConnectError, Listener, Sharing, Socket, Target, TlsTo, bind};
use lapwing_metrics::{Counter, Counters};
use lapwing_settings::{ClientTls, File, ServerTls, Switch};

/// An authority, with a folder for its files.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        Self::named("authority")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn file(&self, name: &str) -> Switch<File> {
        Switch::On(self.folder.path().join(name).display().to_string().parse().unwrap())
    }

    /// Writes a certificate for `host` and its key, as `NAME.pem` and `NAME.key`.
    fn issue(&self, name: &str, host: &str, expires: (i32, u8, u8)) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_after = date_time_ymd(expires.0, expires.1, expires.2);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.folder.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.folder.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn server(&self, name: &str) -> ServerTls {
        let (certificate, key) = (self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")));
        ServerTls { certificate, key, client_ca: Switch::Off }
    }

    fn client(&self) -> ClientTls {
        ClientTls { ca: self.file("ca.pem"), ..ClientTls::default() }
    }
}

const LIMIT: Duration = Duration::from_secs(10);
const FAR: (i32, u8, u8) = (2100, 1, 1);

struct Server {
    address: SocketAddr,
    counters: Arc<Counters>,
    _serving: JoinSet<()>,
}

/// Serves with `identity`: what a client sends comes back, until it ends.
fn echo(identity: Arc<ServerIdentity>, speaks: Speaks) -> Server {
    let counters = Arc::<Counters>::default();
    let bound = BoundListener::from(bind("127.0.0.1:0".parse().unwrap(), 8, Sharing::Alone).unwrap());
    let bound = bound.over_tls(Some(&identity), speaks, &counters);
    let address = bound.local_addr().unwrap();
    let mut listener = bound.registered().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                let mut space = vec![0; 100_000];
                while let Ok(n @ 1..) = socket.read(&mut space).await {
                    socket.write_all(&space[..n]).await.unwrap();
                    socket.flush().await.unwrap();
                }
                let _ = socket.shutdown().await;
            });
        }
    });
    Server { address, counters, _serving: serving }
}

async fn connect(server: &Server, settings: &ClientTls, version: Version) -> Result<Socket, ConnectError> {
    let identity = ClientIdentity::load("tls.upstream", settings).unwrap();
    connect_as(server, &identity, version).await
}

async fn connect_as(server: &Server, identity: &Arc<ClientIdentity>, version: Version) -> Result<Socket, ConnectError> {
    let target = Target::Tls(format!("localhost:{}", server.address.port()), TlsTo(identity.clone()));
    target.connect(Some(version), LIMIT).await
}

async fn echoed(socket: &mut Socket, bytes: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(socket);
    let mut back = vec![0; bytes.len()];
    let sending = async {
        writer.write_all(bytes).await.unwrap();
        writer.flush().await.unwrap();
    };
    let (read, ()) = tokio::join!(reader.read_exact(&mut back), sending);
    read.unwrap();
    back
}

#[tokio::test]
async fn bytes_pass_as_they_are_and_the_version_is_agreed_on() {
    let authority = Authority::new();
    authority.issue("s", "localhost", FAR);
    let identity = ServerIdentity::load("tls.listen", &authority.server("s")).unwrap().unwrap();
    let server = echo(identity.clone(), Speaks::Both);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut socket = connect(&server, &authority.client(), version).await.unwrap();
        assert_eq!(socket.agreed(), Some(version));
        assert!(echoed(&mut socket, &bytes).await == bytes);
    }
    assert_eq!(server.counters.get(Counter::TlsFull), 2);
    assert!(server.counters.get(Counter::TlsMicros) > 0);
    // one that speaks HTTP/1.1 only takes that of two, and refuses HTTP/2 alone: there is no other way to say so
    let server = echo(identity, Speaks::Http1);
    let socket = connect(&server, &authority.client(), Version::HTTP_2).await.unwrap();
    assert_eq!(socket.agreed(), Some(Version::HTTP_11));
}

#[tokio::test]
async fn a_session_is_resumed_and_its_tickets_are_not_text() {
    let authority = Authority::new();
    authority.issue("s", "localhost", FAR);
    let server = echo(ServerIdentity::load("tls.listen", &authority.server("s")).unwrap().unwrap(), Speaks::Both);
    let identity = ClientIdentity::load("tls.upstream", &authority.client()).unwrap();
    let mut socket = connect_as(&server, &identity, Version::HTTP_11).await.unwrap();
    // the server's tickets come by themselves: an idle connection that is asked for text has none
    assert_eq!(echoed(&mut socket, b"a").await, b"a");
    let readable = std::future::poll_fn(|cx| socket.poll_readable(cx));
    assert!(tokio::time::timeout(Duration::from_millis(100), readable).await.is_err());
    assert_eq!(socket.owed_since(), None);
    drop(socket);
    let mut socket = connect_as(&server, &identity, Version::HTTP_11).await.unwrap();
    assert_eq!(echoed(&mut socket, b"b").await, b"b");
    assert_eq!((server.counters.get(Counter::TlsFull), server.counters.get(Counter::TlsResumed)), (1, 1));
}

#[tokio::test]
async fn what_is_looked_at_is_read_again() {
    let authority = Authority::new();
    authority.issue("s", "localhost", FAR);
    let server = echo(ServerIdentity::load("tls.listen", &authority.server("s")).unwrap().unwrap(), Speaks::Both);
    let mut socket = connect(&server, &authority.client(), Version::HTTP_11).await.unwrap();
    let bytes = vec![b'x'; 10_000];
    socket.write_all(&bytes).await.unwrap();
    socket.flush().await.unwrap();
    std::future::poll_fn(|cx| socket.poll_readable(cx)).await.unwrap();
    assert!(socket.may_be_read());
    let (began, last) = socket.came().unwrap();
    assert!(began <= last);
    let mut back = vec![0; bytes.len()];
    socket.read_exact(&mut back).await.unwrap();
    assert_eq!(back, bytes);
    socket.shutdown().await.unwrap();
    std::future::poll_fn(|cx| socket.poll_readable(cx)).await.unwrap();
    assert_eq!(socket.read(&mut back).await.unwrap(), 0, "the end is found by whoever reads next");
}

#[tokio::test]
async fn a_record_that_comes_slowly_is_owed_and_stamped_at_its_first_byte() {
    let authority = Authority::new();
    authority.issue("s", "localhost", FAR);
    let identity = ServerIdentity::load("tls.listen", &authority.server("s")).unwrap().unwrap();
    let bound = BoundListener::from(bind("127.0.0.1:0".parse().unwrap(), 8, Sharing::Alone).unwrap());
    let bound = bound.over_tls(Some(&identity), Speaks::Both, &Arc::default());
    let address = bound.local_addr().unwrap();
    let mut listener = bound.registered().unwrap();
    // a client whose session writes where the test sees it
    let client = ClientIdentity::load("tls.upstream", &authority.client()).unwrap();
    let (wire, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (mut wire, mut socket) = (wire.unwrap(), accepted.unwrap().0);
    assert!(socket.owed_since().is_some(), "the handshake");
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        let mut space = [0; 64];
        let n = socket.read(&mut space).await.unwrap();
        (socket, space[..n].to_vec())
    });
    let config = client.config(Some(Version::HTTP_11)).unwrap();
    let mut session = rustls::ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    while session.is_handshaking() {
        let mut out = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut out).unwrap();
        }
        wire.write_all(&out).await.unwrap();
        let mut space = [0; 8192];
        let n = wire.read(&mut space).await.unwrap();
        session.read_tls(&mut &space[..n]).unwrap();
        session.process_new_packets().unwrap();
    }
    std::io::Write::write_all(&mut session.writer(), b"hello").unwrap();
    let mut out = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut out).unwrap();
    }
    let (last, first) = out.split_last().unwrap();
    wire.write_all(first).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    wire.write_all(&[*last]).await.unwrap();
    let (socket, text) = reading.join_next().await.unwrap().unwrap();
    assert_eq!(text, b"hello");
    let (began, ended) = socket.came().unwrap();
    assert!(ended.since(began) > 30_000_000, "{}", ended.since(began));
    assert_eq!(socket.owed_since(), None);
}

#[tokio::test]
async fn who_is_not_trusted_is_refused() {
    let (authority, other) = (Authority::new(), Authority::named("another"));
    authority.issue("s", "localhost", FAR);
    authority.issue("old", "localhost", (2020, 1, 1));
    authority.issue("client", "client", FAR);
    other.issue("client", "client", FAR);
    let failure = async |server: &ServerTls, client: &ClientTls| {
        let server = echo(ServerIdentity::load("tls.listen", server).unwrap().unwrap(), Speaks::Both);
        let mut socket = match connect(&server, client, Version::HTTP_11).await {
            Ok(socket) => socket,
            Err(error) => return error.to_string(),
        };
        // with TLS 1.3 a server refuses a client's certificate after the client's handshake
        let _ = socket.write_all(b"x").await;
        let error = socket.read(&mut [0; 1]).await.map(|n| format!("read {n}")).unwrap_or_else(|error| error.to_string());
        assert!(server.counters.get(Counter::TlsFailed) > 0 || error == "read 1");
        error
    };
    let (plain, asks) = (authority.server("s"), ServerTls { client_ca: authority.file("ca.pem"), ..authority.server("s") });
    assert_eq!(failure(&plain, &authority.client()).await, "read 1");
    let unknown = failure(&plain, &other.client()).await;
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");
    let expired = failure(&authority.server("old"), &authority.client()).await;
    assert!(expired.contains("expired"), "{expired}");
    let named = ClientTls { server_name: Switch::On("model.example".to_owned()), ..authority.client() };
    let misnamed = failure(&plain, &named).await;
    assert!(misnamed.contains("not valid for"), "{misnamed}");
    let shows =
        |from: &Authority| ClientTls { certificate: from.file("client.pem"), key: from.file("client.key"), ..authority.client() };
    let missing = failure(&asks, &authority.client()).await;
    assert!(missing.contains("CertificateRequired"), "{missing}");
    let strange = failure(&asks, &shows(&other)).await;
    assert!(strange.contains("alert"), "{strange}");
    assert_eq!(failure(&asks, &shows(&authority)).await, "read 1");
}

#[tokio::test]
async fn files_are_replaced_without_a_connection_being_lost() {
    let authority = Authority::new();
    authority.issue("s", "localhost", (2090, 1, 1));
    let identity = ServerIdentity::load("tls.listen", &authority.server("s")).unwrap().unwrap();
    let server = echo(identity.clone(), Speaks::Both);
    let before = identity.validity();
    let mut old = connect(&server, &authority.client(), Version::HTTP_11).await.unwrap();
    authority.issue("s", "localhost", FAR);
    identity.reload().unwrap();
    assert!(identity.validity().until_s > before.until_s && before.from_s < before.until_s);
    assert_eq!(echoed(&mut old, b"old").await, b"old");
    // a faulty file changes nothing
    fs::write(authority.folder.path().join("s.pem"), "nothing").unwrap();
    let error = identity.reload().unwrap_err().to_string();
    assert!(error.contains("s.pem: has no certificate"), "{error}");
    let mut new = connect(&server, &authority.client(), Version::HTTP_11).await.unwrap();
    assert_eq!(echoed(&mut new, b"new").await, b"new");
}

#[test]
fn faults_name_field_file_and_reason() {
    let authority = Authority::new();
    authority.issue("a", "localhost", FAR);
    authority.issue("b", "localhost", FAR);
    let path = |name: &str| authority.folder.path().join(name).display().to_string();
    let write = |name: &str, text: &str| fs::write(Path::new(&path(name)), text).unwrap();
    write("large.pem", &"x".repeat(2 << 20));
    write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    for (certificate, key, field, reason) in [
        ("a.pem", "b.key", "key", "is not the key of the certificate in"),
        ("none.pem", "a.key", "certificate", "No such file"),
        ("large.pem", "a.key", "certificate", "is larger than 1 MiB"),
        ("a.key", "a.key", "certificate", "has no certificate"),
        ("broken.pem", "a.key", "certificate", "is no certificate of X.509"),
        ("a.pem", "a.pem", "key", "has no private key that can be read without a password"),
        (".", "a.key", "certificate", "is not a regular file"),
    ] {
        let settings = ServerTls { certificate: authority.file(certificate), key: authority.file(key), client_ca: Switch::Off };
        let fault = ServerIdentity::load("tls.listen", &settings).unwrap_err();
        let at = if field == "key" { path(key) } else { path(certificate) };
        assert_eq!((fault.path.as_str(), fault.value.as_str()), (format!("tls.listen.{field}").as_str(), at.as_str()), "{fault}");
        assert!(fault.reason.contains(reason), "{fault}");
    }
    let name = ClientTls { server_name: Switch::On("no name".to_owned()), ..ClientTls::default() };
    let fault = ClientIdentity::load("tls.upstream", &name).unwrap_err();
    assert_eq!(fault.to_string(), "tls.upstream.server_name: no name: is neither a DNS name nor an IP address");
    assert!(ServerIdentity::load("tls.listen", &ServerTls::default()).unwrap().is_none());
}
