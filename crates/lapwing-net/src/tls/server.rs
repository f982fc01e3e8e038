//! What a listener shows its clients.

use std::sync::Arc;

use super::files::{OwnCertificate, Source, Validity};
use super::{H2, HTTP_1_1, provider};
use arc_swap::ArcSwap;
use lapwing_settings::{Fault, File, ServerTls};
use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::{ProducesTickets, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;

/// A listener's certificate and key, and the authorities of its clients.
#[derive(Debug)]
pub struct ServerIdentity {
    section: String,
    certificate: File,
    key: File,
    client_ca: Option<File>,
    current: ArcSwap<Current>,
}

/// The versions of HTTP that a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1 and HTTP/2.
    Both,
    /// HTTP/1.1.
    Http1,
}

impl Speaks {
    const ALL: [Self; 2] = [Self::Both, Self::Http1];

    fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Self::Both => vec![H2.to_vec(), HTTP_1_1.to_vec()],
            Self::Http1 => vec![HTTP_1_1.to_vec()],
        }
    }
}

#[derive(Debug)]
struct Current {
    /// In the order of [`Speaks::ALL`].
    configs: [Arc<ServerConfig>; 2],
    validity: Validity,
}

impl ServerIdentity {
    /// Reads the files of `settings`, the section at `section`; `None` if it is off.
    ///
    /// # Errors
    ///
    /// The file that cannot be used, with its field.
    pub fn load(section: &str, settings: &ServerTls) -> Result<Option<Arc<Self>>, Fault> {
        let (Some(certificate), Some(key)) = (settings.certificate.on(), settings.key.on()) else { return Ok(None) };
        let (certificate, key, client_ca) = (certificate.clone(), key.clone(), settings.client_ca.on().cloned());
        let current = Current::read(section, (&certificate, &key), client_ca.as_ref())?;
        let (section, current) = (section.to_owned(), ArcSwap::from_pointee(current));
        Ok(Some(Arc::new(Self { section, certificate, key, client_ca, current })))
    }

    /// Reads the files again: connections that are accepted from now on are shown what they hold. Sessions of before are not resumed.
    ///
    /// # Errors
    ///
    /// As for [`Self::load`]; then nothing changes.
    pub fn reload(&self) -> Result<(), Fault> {
        let current = Current::read(&self.section, (&self.certificate, &self.key), self.client_ca.as_ref())?;
        self.current.store(Arc::new(current));
        Ok(())
    }

    /// When its chain is valid.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.current.load().validity
    }

    pub(crate) fn config(&self, speaks: Speaks) -> Arc<ServerConfig> {
        self.current.load().configs[speaks as usize].clone()
    }
}

impl Current {
    fn read(section: &str, (certificate, key): (&File, &File), client_ca: Option<&File>) -> Result<Self, Fault> {
        let (certificate, key) =
            (Source { section, field: "certificate", file: certificate }, Source { section, field: "key", file: key });
        let provider = provider();
        let own = OwnCertificate::read(&provider, &certificate, &key)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| certificate.fault(error))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let source = Source { section, field: "client_ca", file };
                let verifier = WebPkiClientVerifier::builder_with_provider(source.authorities()?, provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| source.fault(error))?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own.key)));
        config.ticketer = ticketer().map_err(|error| certificate.fault(error))?;
        let configs = Speaks::ALL.map(|speaks| {
            let mut config = config.clone();
            config.alpn_protocols = speaks.alpn();
            Arc::new(config)
        });
        Ok(Self { configs, validity: own.validity })
    }
}

/// Sessions are resumed by tickets that only this process can read (RFC 8446, 2.2), so that none is kept here.
fn ticketer() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    Ticketer::new()
}
