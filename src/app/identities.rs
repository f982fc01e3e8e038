//! The certificates, keys and authorities of the section `tls` and of `upstreams`: read at the start, and again when their files change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::file_watch::FileWatch;
use crate::config::Config;
use lapwing_diagnosis::CertificateValidity;
use lapwing_metrics::{Counter, Counters};
use lapwing_net::{ClientIdentity, ServerIdentity, Validity};
use lapwing_settings::{ClientTls, ConfigCell, ConfigHandle, Fault, ServerTls};

/// What each end shows and asks for.
#[derive(Clone, Debug)]
pub(crate) struct Identities {
    pub(crate) listen: Option<Arc<ServerIdentity>>,
    pub(crate) admin: Option<Arc<ServerIdentity>>,
    pub(crate) otlp: Option<Arc<ServerIdentity>>,
    pub(crate) upstreams: UpstreamIdentities,
    pub(crate) collector: Arc<ClientIdentity>,
    /// Of each of `downstreams`: whom it has to prove itself to, and what its listener shows.
    pub(crate) downstreams: Vec<(Arc<ClientIdentity>, Option<Arc<ServerIdentity>>)>,
    /// When their certificates are valid.
    certificates: Arc<ConfigCell<Vec<CertificateValidity>>>,
    counters: Arc<Counters>,
}

/// Whom upstreams have to prove themselves to.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamIdentities {
    /// `tls.upstream`: of the only upstream, of those without their own, and of shadow targets.
    pub(crate) shared: Arc<ClientIdentity>,
    /// `upstreams.NAME.tls`, by name.
    own: Arc<BTreeMap<String, Arc<ClientIdentity>>>,
}

impl UpstreamIdentities {
    /// That of the upstream `name`.
    pub(crate) fn of(&self, name: &str) -> &Arc<ClientIdentity> {
        self.own.get(name).unwrap_or(&self.shared)
    }

    /// Its own, if it has one.
    pub(crate) fn own(&self, name: &str) -> Option<&Arc<ClientIdentity>> {
        self.own.get(name)
    }
}

impl Identities {
    /// Reads the files, and returns also what sees them change from then on. `counters` has when certificates expire, and the failures to read them again.
    ///
    /// # Errors
    ///
    /// All files that cannot be used.
    pub(crate) fn load(config: &Config, counters: Arc<Counters>) -> Result<(Self, Vec<IdentityWatch>), Vec<Fault>> {
        let mut reader = IdentityReader::default();
        let [listen, admin, otlp] = config.tls.servers().map(|(key, server)| reader.server(&format!("tls.{key}"), server));
        let [shared, collector] = config.tls.clients().map(|(key, client)| reader.client(&format!("tls.{key}"), client));
        let own = config.upstreams.iter().filter_map(|(name, upstream)| {
            let tls = upstream.tls.as_ref()?;
            Some((name.clone(), reader.client(&own_section(name), tls)))
        });
        let upstreams = UpstreamIdentities { own: Arc::new(own.collect()), shared };
        let downstreams = config.downstreams.iter().enumerate().map(|(at, one)| {
            let client = one.tls.as_ref().map(|tls| reader.client(&format!("downstreams[{at}].tls"), tls));
            let server = one.listen_tls.as_ref().and_then(|tls| reader.server(&format!("downstreams[{at}].listen_tls"), tls));
            (client.unwrap_or_default(), server)
        });
        let downstreams = downstreams.collect();
        let IdentityReader { faults, read } = reader;
        if !faults.is_empty() {
            return Err(faults);
        }
        let certificates = Arc::new(ConfigCell::new(Vec::new()));
        let this = Self { listen, admin, otlp, upstreams, collector, downstreams, certificates, counters };
        this.show_expiries();
        let watch = |(identity, files): (Identity, FileWatch)| IdentityWatch { identity, files, all: this.clone() };
        let watches = read.into_iter().filter(|(_, files)| !files.is_empty()).map(watch).collect();
        Ok((this, watches))
    }

    fn show_expiries(&self) {
        let of = |identity: &Option<Arc<ServerIdentity>>| identity.as_ref().map(|identity| identity.validity());
        let all = [
            ("listen", Counter::ExpiryListen, of(&self.listen)),
            ("admin", Counter::ExpiryAdmin, of(&self.admin)),
            ("otlp", Counter::ExpiryOtlp, of(&self.otlp)),
            ("upstream", Counter::ExpiryUpstream, self.upstreams.shared.validity()),
            ("collector", Counter::ExpiryCollector, self.collector.validity()),
        ];
        let mut certificates = Vec::new();
        let mut add = |section: String, validity: Option<Validity>| {
            certificates.extend(validity.map(|Validity { from_s, until_s }| CertificateValidity { section, from_s, until_s }));
        };
        for (key, counter, validity) in all {
            self.counters.set(counter, validity.map_or(0, |validity| validity.until_s));
            add(format!("tls.{key}"), validity);
        }
        // their expiry is in `/metrics` by upstream, with their state
        for (name, identity) in &*self.upstreams.own {
            add(own_section(name), identity.validity());
        }
        for (at, (client, server)) in self.downstreams.iter().enumerate() {
            add(format!("downstreams[{at}].tls"), client.validity());
            add(format!("downstreams[{at}].listen_tls"), server.as_ref().map(|server| server.validity()));
        }
        self.certificates.replace(certificates);
    }

    /// When certificates are valid.
    pub(crate) fn certificates(&self) -> ConfigHandle<Vec<CertificateValidity>> {
        self.certificates.handle()
    }
}

/// The section of the upstream `name`.
fn own_section(name: &str) -> String {
    format!("upstreams.{name}.tls")
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

/// Reads one section after the other, so that all faults are found.
#[derive(Default)]
struct IdentityReader {
    faults: Vec<Fault>,
    /// What was read, each with what looks at its files.
    read: Vec<(Identity, FileWatch)>,
}

impl IdentityReader {
    /// `None` if nothing is spoken there, or it has a fault.
    fn server(&mut self, section: &str, settings: &ServerTls) -> Option<Arc<ServerIdentity>> {
        // before the files are read
        let files = FileWatch::new(settings.files());
        let identity = self.noted(ServerIdentity::load(section, settings))??;
        self.read.push((Identity::Server(identity.clone()), files));
        Some(identity)
    }

    /// One that nobody gets if it has a fault.
    fn client(&mut self, section: &str, settings: &ClientTls) -> Arc<ClientIdentity> {
        let files = FileWatch::new(settings.files());
        let Some(identity) = self.noted(ClientIdentity::load(section, settings)) else { return Arc::default() };
        self.read.push((Identity::Client(identity.clone()), files));
        identity
    }

    fn noted<T>(&mut self, loaded: Result<T, Fault>) -> Option<T> {
        loaded.map_err(|fault| self.faults.push(fault)).ok()
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
