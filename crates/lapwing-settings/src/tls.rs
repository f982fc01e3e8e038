//! The section `tls`: the files of certificates and keys. lapwing-net reads them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Checks, File, Form, Record, Section, Switch};

/// The section `tls`. What is not given speaks without TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Tls {
    /// The address that clients connect to.
    pub listen: ServerTls,
    /// The admin address.
    pub admin: ServerTls,
    /// The addresses that receive spans.
    pub otlp: ServerTls,
    /// An upstream and shadow targets with the scheme `https`.
    pub upstream: ClientTls,
    /// Collectors with the scheme `https` or `grpcs`.
    pub collector: ClientTls,
}

impl Tls {
    /// The listeners, by their keys.
    #[must_use]
    pub const fn servers(&self) -> [(&'static str, &ServerTls); 3] {
        [("listen", &self.listen), ("admin", &self.admin), ("otlp", &self.otlp)]
    }

    /// The servers that Lapwing connects to, by their keys.
    #[must_use]
    pub const fn clients(&self) -> [(&'static str, &ClientTls); 2] {
        [("upstream", &self.upstream), ("collector", &self.collector)]
    }
}

impl Section for Tls {
    fn check(&self, checks: &mut Checks) {
        for (key, server) in self.servers() {
            checks.section(key, |checks| server.check(checks));
        }
        for (key, client) in self.clients() {
            checks.section(key, |checks| client.check(checks));
        }
    }
}

/// A certificate needs its key, and a key its certificate.
fn pair(certificate: &Switch<File>, key: &Switch<File>, checks: &mut Checks) {
    match (certificate.on(), key.on()) {
        (Some(_), None) => checks.fault("key", key, "is missing: a certificate needs its private key"),
        (None, Some(_)) => checks.fault("certificate", certificate, "is missing: a private key needs its certificate"),
        _ => {}
    }
}

/// How a listener speaks TLS 1.2 and 1.3.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct ServerTls {
    /// Its certificate, then its intermediate ones.
    pub certificate: Switch<File>,
    /// Its private key.
    pub key: Switch<File>,
    /// Authorities of clients' certificates, without which they are refused.
    pub client_ca: Switch<File>,
}

impl ServerTls {
    /// Whether it speaks TLS.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.certificate.on().is_some() && self.key.on().is_some()
    }

    /// All that it is read from.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        paths([&self.certificate, &self.key, &self.client_ca])
    }
}

/// How TLS is spoken to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct ClientTls {
    /// The authorities of servers. `off`: the system's.
    pub ca: Switch<File>,
    /// Lapwing's own, for servers that ask for one.
    pub certificate: Switch<File>,
    /// Its private key.
    pub key: Switch<File>,
    /// The name that is asked for (SNI) and that certificates must have. `off`: the host.
    pub server_name: Switch<String>,
}

/// What [`ClientTls`] is where it is one of several.
pub const CLIENT_TLS: Record = Record {
    what: "a section of files, as in {ca: /tls/ca.crt}",
    keys: &[("ca", Form::Text), ("certificate", Form::Text), ("key", Form::Text), ("server_name", Form::Text)],
    stand_in: &[],
};

/// What [`ServerTls`] is where it is one of several.
pub const SERVER_TLS: Record = Record {
    what: "a section of files, as in {certificate: /tls/tls.crt, key: /tls/tls.key}",
    keys: &[("certificate", Form::Text), ("key", Form::Text), ("client_ca", Form::Text)],
    stand_in: &[],
};

impl Section for ServerTls {
    fn check(&self, checks: &mut Checks) {
        pair(&self.certificate, &self.key, checks);
        if self.client_ca.on().is_some() && !self.is_on() {
            checks.fault("client_ca", &self.client_ca, "needs certificate and key: without them nothing speaks TLS here");
        }
    }
}

impl Section for ClientTls {
    fn check(&self, checks: &mut Checks) {
        pair(&self.certificate, &self.key, checks);
    }
}

impl ClientTls {
    /// All that it is read from, but for the system's authorities.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        paths([&self.ca, &self.certificate, &self.key])
    }
}

fn paths(files: [&Switch<File>; 3]) -> Vec<PathBuf> {
    files.into_iter().filter_map(Switch::on).map(|file| file.path().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_record_are_its_fields() {
        CLIENT_TLS.assert_describes::<ClientTls>();
        SERVER_TLS.assert_describes::<ServerTls>();
    }
}
