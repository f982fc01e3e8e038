//! The certificates, keys and authorities of the section `tls`: read at the start, and again when their files change.

use std::sync::Arc;
use std::time::Duration;

use super::file_watch::FileWatch;
use lapwing_diagnosis::CertificateValidity;
use lapwing_metrics::{Counter, Counters};
use lapwing_net::{ClientIdentity, ServerIdentity, Validity};
use lapwing_settings::{ConfigCell, ConfigHandle, Fault, Tls};

/// What each end shows and asks for.
#[derive(Clone, Debug)]
pub(crate) struct Identities {
    pub(crate) listen: Option<Arc<ServerIdentity>>,
    pub(crate) admin: Option<Arc<ServerIdentity>>,
    pub(crate) otlp: Option<Arc<ServerIdentity>>,
    pub(crate) upstream: Arc<ClientIdentity>,
    pub(crate) collector: Arc<ClientIdentity>,
    /// When their certificates are valid, by their keys in the section.
    certificates: Arc<ConfigCell<Vec<CertificateValidity>>>,
    counters: Arc<Counters>,
}

impl Identities {
    /// Reads the files, and returns also what sees them change from then on. `counters` has when certificates expire, and the failures to read them again.
    ///
    /// # Errors
    ///
    /// All files that cannot be used.
    pub(crate) fn load(tls: &Tls, counters: Arc<Counters>) -> Result<(Self, Vec<IdentityWatch>), Vec<Fault>> {
        let files = tls.servers().map(|(_, server)| server.files()).into_iter();
        let seen = files.chain(tls.clients().map(|(_, client)| client.files())).map(FileWatch::new).collect();
        let servers = tls.servers().map(|(key, server)| ServerIdentity::load(&format!("tls.{key}"), server));
        let clients = tls.clients().map(|(key, client)| ClientIdentity::load(&format!("tls.{key}"), client));
        match (servers, clients) {
            ([Ok(listen), Ok(admin), Ok(otlp)], [Ok(upstream), Ok(collector)]) => {
                let this = Self {
                    listen,
                    admin,
                    otlp,
                    upstream,
                    collector,
                    certificates: Arc::new(ConfigCell::new(Vec::new())),
                    counters,
                };
                this.show_expiries();
                let watches = this.watches(seen);
                Ok((this, watches))
            }
            (servers, clients) => {
                let of_clients = clients.into_iter().filter_map(Result::err);
                Err(servers.into_iter().filter_map(Result::err).chain(of_clients).collect())
            }
        }
    }

    fn show_expiries(&self) {
        let of = |identity: &Option<Arc<ServerIdentity>>| identity.as_ref().map(|identity| identity.validity());
        let all = [
            ("listen", Counter::ExpiryListen, of(&self.listen)),
            ("admin", Counter::ExpiryAdmin, of(&self.admin)),
            ("otlp", Counter::ExpiryOtlp, of(&self.otlp)),
            ("upstream", Counter::ExpiryUpstream, self.upstream.validity()),
            ("collector", Counter::ExpiryCollector, self.collector.validity()),
        ];
        let mut certificates = Vec::new();
        for (key, counter, validity) in all {
            self.counters.set(counter, validity.map_or(0, |validity| validity.until_s));
            certificates.extend(validity.map(|Validity { from_s, until_s }| CertificateValidity { key, from_s, until_s }));
        }
        self.certificates.replace(certificates);
    }

    /// When certificates are valid.
    pub(crate) fn certificates(&self) -> ConfigHandle<Vec<CertificateValidity>> {
        self.certificates.handle()
    }

    /// All of them, each with what looks at its files. `seen` were made before they were read, in the order of the section.
    fn watches(&self, seen: Vec<FileWatch>) -> Vec<IdentityWatch> {
        let servers = [&self.listen, &self.admin, &self.otlp].map(|identity| identity.clone().map(Identity::Server));
        let clients = [&self.upstream, &self.collector].map(|identity| Some(Identity::Client(identity.clone())));
        let all = servers.into_iter().chain(clients).zip(seen);
        let watch = |(identity, files): (Option<Identity>, FileWatch)| {
            identity.filter(|_| !files.is_empty()).map(|identity| IdentityWatch { identity, files, all: self.clone() })
        };
        all.filter_map(watch).collect()
    }
}

#[derive(Debug)]
enum Identity {
    Server(Arc<ServerIdentity>),
    Client(Arc<ClientIdentity>),
}

impl Identity {
    fn reload(&self) -> Result<(), Fault> {
        match self {
            Self::Server(identity) => identity.reload(),
            Self::Client(identity) => identity.reload(),
        }
    }
}

/// Looks whether the files of one identity have changed.
#[derive(Debug)]
pub(crate) struct IdentityWatch {
    identity: Identity,
    all: Identities,
    files: FileWatch,
}

impl IdentityWatch {
    /// Looks if the last look is `interval` ago, and reads the files again if they have changed.
    pub(crate) fn look(&mut self, interval: Duration) {
        if self.files.has_changed(interval) {
            self.reload("files have changed");
        }
    }

    /// Reads the files again.
    pub(crate) fn reload(&mut self, why: &str) {
        self.files.begin();
        match self.identity.reload() {
            Ok(()) => {
                self.all.show_expiries();
                tracing::info!(files = ?self.files.paths(), "{why}: new connections use them");
            }
            Err(fault) => {
                self.all.counters.bump(Counter::TlsReloadFailures);
                tracing::error!("{why}: {fault}; what was read before stays in force");
            }
        }
    }
}
