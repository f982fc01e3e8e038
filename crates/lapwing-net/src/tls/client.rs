//! What Lapwing shows and asks of the servers that it connects to.

use std::fmt::Display;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::Version;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::files::{OwnCertificate, Source, Validity};
use super::{H2, HTTP_1_1, provider};
use lapwing_settings::{ClientTls, Fault};

/// The authorities that servers are trusted by, and Lapwing's own certificate.
#[derive(Debug)]
pub struct ClientIdentity {
    section: String,
    settings: ClientTls,
    name: Option<ServerName<'static>>,
    /// Read when it is first used: without `ca`, the authorities of the system are many.
    current: ArcSwapOption<Current>,
}

#[derive(Debug)]
struct Current {
    http1: Arc<ClientConfig>,
    either: Arc<ClientConfig>,
    /// For what is not HTTP.
    unnamed: Arc<ClientConfig>,
    validity: Option<Validity>,
}

/// Trusts the system's authorities, and shows nothing.
impl Default for ClientIdentity {
    fn default() -> Self {
        let (section, settings) = ("tls".to_owned(), ClientTls::default());
        Self { section, settings, name: None, current: ArcSwapOption::empty() }
    }
}

impl ClientIdentity {
    /// Reads the files of `settings`, the section at `section`.
    ///
    /// # Errors
    ///
    /// The file or name that cannot be used, with its field.
    pub fn load(section: &str, settings: &ClientTls) -> Result<Arc<Self>, Fault> {
        let named = |name: &String| {
            ServerName::try_from(name.clone())
                .map_err(|_| Fault::new(format!("{section}.server_name"), name, "is neither a DNS name nor an IP address"))
        };
        let name = settings.server_name.on().map(named).transpose()?;
        let this = Self { section: section.to_owned(), settings: settings.clone(), name, current: ArcSwapOption::empty() };
        if !this.settings.files().is_empty() {
            this.reload()?;
        }
        Ok(Arc::new(this))
    }

    /// Reads the files again: connections that are opened from now on use what they hold.
    ///
    /// # Errors
    ///
    /// As for [`Self::load`]; then nothing changes.
    pub fn reload(&self) -> Result<(), Fault> {
        self.current.store(Some(Arc::new(Current::read(&self.section, &self.settings)?)));
        Ok(())
    }

    /// When the chain of Lapwing's own certificate is valid; `None` if it has none.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        self.current.load().as_ref()?.validity
    }

    /// The name that the certificate of the server at `authority` must have.
    pub(crate) fn name(&self, authority: &str) -> Option<ServerName<'static>> {
        if let Some(name) = &self.name {
            return Some(name.clone());
        }
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).ok()
    }

    /// What a connection for this version of HTTP begins with; for HTTP/2, a server may also choose HTTP/1.1. `None` names no protocol.
    ///
    /// # Errors
    ///
    /// If the system's authorities cannot be used.
    pub(crate) fn config(&self, version: Option<Version>) -> Result<Arc<ClientConfig>, Fault> {
        if self.current.load().is_none() {
            self.reload()?;
        }
        let current = self.current.load();
        let config = current.as_ref().map(|current| match version {
            None => &current.unnamed,
            Some(Version::HTTP_11) => &current.http1,
            Some(_) => &current.either,
        });
        config.cloned().ok_or_else(|| Fault::new(&*self.section, "", "cannot be used"))
    }
}

impl Current {
    fn read(section: &str, settings: &ClientTls) -> Result<Self, Fault> {
        let source = |field, file| Source { section, field, file };
        let provider = provider();
        let roots = match settings.ca.on() {
            Some(file) => source("ca", file).authorities()?,
            None => system_roots(),
        };
        let fails = |error: &dyn Display| Fault::new(format!("{section}.ca"), settings.ca.to_string(), error.to_string());
        if roots.is_empty() {
            return Err(fails(&"the system has no authorities: name a file of them"));
        }
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let mut config = builder.map_err(|error| fails(&error))?.with_root_certificates(roots).with_no_client_auth();
        let mut validity = None;
        if let (Some(certificate), Some(key)) = (settings.certificate.on(), settings.key.on()) {
            let own = OwnCertificate::read(&provider, &source("certificate", certificate), &source("key", key))?;
            validity = Some(own.validity);
            config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(own.key));
        }
        let (unnamed, mut either) = (Arc::new(config.clone()), config.clone());
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        either.alpn_protocols = vec![H2.to_vec(), HTTP_1_1.to_vec()];
        Ok(Self { http1: Arc::new(config), either: Arc::new(either), unnamed, validity })
    }
}

/// The authorities that the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR`, else its store).
fn system_roots() -> Arc<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "an authority of the system cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    Arc::new(roots)
}
