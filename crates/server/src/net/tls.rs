//! Certificates: loaded, checked, and reloaded while connections stay open.
//!
//! ```text
//! files ─▶ check (reads, fits, is in force) ─▶ swap ─▶ every later handshake
//!              └─ refused: the reason goes to the log, the certificate before stays in use
//! ```
//! TLS 1.3 only, with the `ring` provider named explicitly: a second provider in the same binary changes
//! nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Life of a certificate made by `dev_tls`, …
const DEV_DAYS: i64 = 365;
/// … which is replaced when no more than this is left of it.
const DEV_RENEW_DAYS: i64 = 30;

/// A certificate or key that cannot be used, with file and reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub what: String,
}

impl TlsError {
    fn new(path: &Path, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), what: what.into() }
    }
}

/// The certificate for new connections. Cheap to clone; all clones change together.
#[derive(Debug, Clone)]
pub struct Certificates {
    files: Files,
    current: Arc<Current>,
}

#[derive(Debug, Clone)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificates {
    /// Reads both files.
    ///
    /// # Errors
    /// A file that cannot be read or holds something else; a key of another certificate; a certificate that
    /// has expired or is not yet in force.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let files = Files { cert: cert.to_owned(), key: key.to_owned() };
        let current = Arc::new(Current(ArcSwap::from_pointee(files.read()?)));
        Ok(Self { files, current })
    }

    /// Self-signed certificate for this machine's own names, stored in `dir`; created when it is missing or
    /// about to expire.
    ///
    /// # Errors
    /// The files cannot be read or written.
    pub fn for_development(dir: &Path) -> Result<Self, TlsError> {
        let (cert, key) = (dir.join("dev-cert.pem"), dir.join("dev-key.pem"));
        if !dev_is_good(&cert) {
            make_dev(dir, &cert, &key)?;
        }
        Self::load(&cert, &key)
    }

    /// Reads both files again. On an error the current certificate stays in use.
    ///
    /// # Errors
    /// As [`Certificates::load`].
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.0.store(Arc::new(self.files.read()?));
        Ok(())
    }

    /// Times of the last change of both files; `None` for an unreadable file, whose reload then reports the
    /// error.
    pub fn state(&self) -> [Option<SystemTime>; 2] {
        let changed = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
        [changed(&self.files.cert), changed(&self.files.key)]
    }

    /// The file with the certificate.
    pub fn path(&self) -> &Path {
        &self.files.cert
    }

    /// Settings of a listener that offers these protocols.
    ///
    /// # Errors
    /// None in practice: the provider has TLS 1.3.
    pub fn server_config(&self, protocols: &[&str]) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsError::new(&self.files.cert, error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Arc::new(config))
    }
}

impl Files {
    fn read(&self) -> Result<CertifiedKey, TlsError> {
        let wrong_cert = |what: String| TlsError::new(&self.cert, what);
        let chain = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong_cert(format!("cannot read a certificate: {error}")))?;
        let Some(own) = chain.first() else {
            return Err(wrong_cert("holds no certificate".to_owned()));
        };
        in_force(own).map_err(wrong_cert)?;
        let mode = std::fs::metadata(&self.key).map(|file| file.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o007 != 0) {
            let what = "every user of this machine may read or write the private key; remove that permission (chmod 600)";
            return Err(TlsError::new(&self.key, what.to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| TlsError::new(&self.key, format!("cannot read a private key: {error}")))?;
        let key = ring::sign::any_supported_type(&key)
            .map_err(|error| TlsError::new(&self.key, format!("the private key cannot be used: {error}")))?;
        let both = CertifiedKey::new(chain, key);
        both.keys_match().map_err(|error| {
            let what = format!("does not belong to the certificate in {}: {error}", self.cert.display());
            TlsError::new(&self.key, what)
        })?;
        Ok(both)
    }
}

/// Rejects a certificate that is expired or not yet in force.
fn in_force(certificate: &CertificateDer<'_>) -> Result<(), String> {
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|error| format!("not a certificate: {error}"))?;
    let now = jiff::Timestamp::now().as_second();
    let validity = parsed.validity();
    if now > validity.not_after.timestamp() {
        return Err(format!("the certificate expired at {}", validity.not_after));
    }
    if now < validity.not_before.timestamp() {
        return Err(format!("the certificate is not in force before {}", validity.not_before));
    }
    Ok(())
}

/// True when the certificate can be read and is valid for long enough.
fn dev_is_good(cert: &Path) -> bool {
    let Ok(der) = CertificateDer::from_pem_file(cert) else { return false };
    let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return false };
    let left = parsed.validity().not_after.timestamp() - jiff::Timestamp::now().as_second();
    in_force(&der).is_ok() && left > DEV_RENEW_DAYS * 86_400
}

fn make_dev(dir: &Path, cert: &Path, key: &Path) -> Result<(), TlsError> {
    let wrong = |what: String| TlsError::new(cert, what);
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let mut params = CertificateParams::new(names).map_err(|error| wrong(error.to_string()))?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "ropewalk development");
    params.not_before = day(-1);
    params.not_after = day(DEV_DAYS);
    let pair = KeyPair::generate().map_err(|error| wrong(error.to_string()))?;
    let made = params.self_signed(&pair).map_err(|error| wrong(error.to_string()))?;
    std::fs::create_dir_all(dir).map_err(|error| TlsError::new(dir, error.to_string()))?;
    write_private(key, &pair.serialize_pem())?;
    write_private(cert, &made.pem())
}

/// Midnight, this many days from now.
fn day(from_now: i64) -> time::OffsetDateTime {
    let then = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * from_now);
    let date = then.to_zoned(jiff::tz::TimeZone::UTC).date();
    rcgen::date_time_ymd(
        i32::from(date.year()),
        u8::try_from(date.month()).unwrap_or(1),
        u8::try_from(date.day()).unwrap_or(1),
    )
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<(), TlsError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| TlsError::new(path, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a certificate in force from `from` to `to` days from now, and its key.
    fn certificate(dir: &Path, from: i64, to: i64) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (day(from), day(to));
        let pair = KeyPair::generate().unwrap();
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        std::fs::write(&cert, params.self_signed(&pair).unwrap().pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        (cert, key)
    }

    #[test]
    fn load_accepts_only_valid_certificate_with_matching_key() {
        let dir = tempfile::tempdir().unwrap();
        let refusal = |cert: &Path, key: &Path| Certificates::load(cert, key).unwrap_err().to_string();
        let (cert, key) = certificate(dir.path(), -10, 10);
        Certificates::load(&cert, &key).unwrap();
        let (cert, key) = certificate(dir.path(), -10, -5);
        assert!(refusal(&cert, &key).contains("cert.pem: the certificate expired at"));
        let (cert, key) = certificate(dir.path(), 5, 10);
        assert!(refusal(&cert, &key).contains("not in force before"));
        let (cert, key) = certificate(dir.path(), -10, 10);
        std::fs::write(&key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(refusal(&cert, &key).contains("key.pem: does not belong to the certificate"));
        std::fs::write(&key, "nothing").unwrap();
        assert!(refusal(&cert, &key).contains("key.pem: cannot read a private key"));
        let (cert, key) = certificate(dir.path(), -10, 10);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refusal(&cert, &key).contains("key.pem: every user of this machine may read"));
        std::fs::write(&cert, "nothing").unwrap();
        assert!(refusal(&cert, &key).contains("cert.pem: "));
        assert!(refusal(Path::new("/no/such.pem"), &key).contains("/no/such.pem"));
    }

    #[test]
    fn failed_reload_keeps_current_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = certificate(dir.path(), -10, 10);
        let loaded = Certificates::load(&cert, &key).unwrap();
        let in_use = |c: &Certificates| c.current.0.load().cert.clone();
        let first = in_use(&loaded);
        std::fs::write(&cert, "nothing").unwrap();
        assert!(loaded.reload().is_err());
        assert_eq!(in_use(&loaded), first);
        certificate(dir.path(), -10, 10);
        loaded.reload().unwrap();
        assert_ne!(in_use(&loaded), first);
    }

    #[test]
    fn development_certificate_is_reused_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("tls");
        Certificates::for_development(&place).unwrap();
        let read = || std::fs::read(place.join("dev-cert.pem")).unwrap();
        let first = read();
        Certificates::for_development(&place).unwrap();
        assert_eq!(read(), first);
        let mode = std::fs::metadata(place.join("dev-key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
