//! TLS with certificates of both ends.

use std::fs;
use std::path::Path;

use lapwing_testing::{RedisServer, free_port};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::running::client;

/// Writes an authority, and the certificates of `localhost` and of a client.
fn certificates(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    for name in ["localhost", "client"] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test]
async fn both_ends_show_certificates() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let tls_port = free_port();
    let Some(_server) = RedisServer::start(&[
        "--tls-port",
        &tls_port.to_string(),
        "--tls-cert-file",
        &path("localhost.pem"),
        "--tls-key-file",
        &path("localhost.key"),
        "--tls-ca-cert-file",
        &path("ca.pem"),
        "--tls-auth-clients",
        "yes",
    ]) else {
        return;
    };
    let tls = json!({"ca": path("ca.pem"), "certificate": path("client.pem"), "key": path("client.key")});
    let running = client(json!({"url": format!("rediss://localhost:{tls_port}"), "tls": tls}));
    running.until_up().await;
    running.write("lapwing:a", "one").await;
    assert_eq!(running.read("lapwing:a").await.as_deref(), Some("one"));

    for (host, tls) in [
        ("localhost", json!({"ca": path("ca.pem")})), // shows none
        ("localhost", json!({"ca": path("client.pem"), "certificate": path("client.pem"), "key": path("client.key")})), // trusts another
        ("127.0.0.1", tls.clone()), // is called otherwise
    ] {
        let running = client(json!({"url": format!("rediss://{host}:{tls_port}"), "tls": tls}));
        running.until("is not refused", |client| client.counts().connect_errors > 0).await;
        assert!(!running.client.counts().is_up, "{host} {tls}");
    }
}
