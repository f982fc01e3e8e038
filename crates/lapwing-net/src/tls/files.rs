//! Certificates and keys in files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::Certificate;
use x509_cert::der::Decode;

use lapwing_settings::{Fault, File};

/// The largest file that is read: a bundle of a system's authorities has a quarter of that.
const MOST_BYTES: u64 = 1 << 20;

/// One file of a section, such as `key` of `tls.listen`.
pub(crate) struct Source<'a> {
    pub(crate) section: &'a str,
    pub(crate) field: &'a str,
    pub(crate) file: &'a File,
}

impl Source<'_> {
    pub(crate) fn fault(&self, reason: impl std::fmt::Display) -> Fault {
        Fault::new(format!("{}.{}", self.section, self.field), self.file.to_string(), reason.to_string())
    }

    fn read(&self) -> Result<Vec<u8>, Fault> {
        let path: &Path = self.file.path();
        let found = fs::metadata(path).map_err(|error| self.fault(error))?;
        if !found.is_file() {
            return Err(self.fault("is not a regular file"));
        }
        if found.len() > MOST_BYTES {
            return Err(self.fault("is larger than 1 MiB"));
        }
        fs::read(path).map_err(|error| self.fault(error))
    }

    /// All certificates of the file, of which there is one at least.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Fault> {
        let bytes = self.read()?;
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let certificates = read.map_err(|error| self.fault(format!("is no PEM file: {error}")))?;
        if certificates.is_empty() {
            return Err(self.fault("has no certificate (-----BEGIN CERTIFICATE-----)"));
        }
        Ok(certificates)
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, Fault> {
        let bytes = self.read()?;
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => {
                self.fault("has no private key that can be read without a password (PKCS #8, PKCS #1 or SEC 1, in PEM)")
            }
            error => self.fault(format!("is no PEM file: {error}")),
        })
    }

    /// The authorities of the file.
    pub(crate) fn authorities(&self) -> Result<Arc<RootCertStore>, Fault> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.fault(format!("has an authority that cannot be used: {error}")))?;
        }
        Ok(Arc::new(roots))
    }
}

/// A chain of certificates with the key of its first.
pub(crate) struct OwnCertificate {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) validity: Validity,
}

/// Between which times all certificates of a chain are valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From then on.
    pub from_s: u64,
    /// Until then.
    pub until_s: u64,
}

impl OwnCertificate {
    pub(crate) fn read(provider: &CryptoProvider, certificate: &Source<'_>, key: &Source<'_>) -> Result<Self, Fault> {
        let chain = certificate.certificates()?;
        let validity = validity(certificate, &chain)?;
        let made = CertifiedKey::from_der(chain, key.private_key()?, provider);
        let key = made.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => key.fault(format!("is not the key of the certificate in {}", certificate.file)),
            rustls::Error::InvalidCertificate(_) => certificate.fault(format!("cannot be used: {error}")),
            error => key.fault(format!("cannot be used: {error}")),
        })?;
        Ok(Self { key: Arc::new(key), validity })
    }
}

fn validity(source: &Source<'_>, chain: &[CertificateDer<'static>]) -> Result<Validity, Fault> {
    let mut all = Validity { from_s: 0, until_s: u64::MAX };
    for der in chain {
        let read = Certificate::from_der(der).map_err(|error| source.fault(format!("is no certificate of X.509: {error}")))?;
        let [from_s, until_s] = {
            let validity = read.tbs_certificate().validity();
            [validity.not_before, validity.not_after].map(|time| time.to_unix_duration().as_secs())
        };
        all = Validity { from_s: all.from_s.max(from_s), until_s: all.until_s.min(until_s) };
    }
    Ok(all)
}
