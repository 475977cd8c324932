//! The log service that the settings name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropewalk::cluster::SharedLog;
use ropewalk_cluster_nats::{NatsError, NatsLog, NatsSettings, NatsUser};
use ropewalk_cluster_postgres::{PostgresLog, PostgresOptions};

use crate::cluster::cluster_error;
use crate::config::settings::{Cluster, SettingsError, without_passwords};
use crate::server::ServeError;

/// How often a node tries to open the stream that another one creates, and the pause between.
const CREATE_ATTEMPTS: u32 = 20;
const CREATE_PAUSE: Duration = Duration::from_millis(250);

/// How the file of a user of NATS with a key begins.
const KEY_FILE: &str = "-----BEGIN NATS USER JWT";

/// Opens the shared log of `cluster.log`, and creates it for a new cluster.
///
/// # Errors
/// The URL cannot be used; the service does not answer, refuses access, or could lose entries.
pub(super) fn open(settings: &Cluster, is_new: bool) -> Result<Arc<dyn SharedLog>, ServeError> {
    let url = settings.log.as_deref().unwrap_or_default();
    let shown = without_passwords(url);
    match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("nats" | "tls") => nats(url, settings, is_new),
        Some("postgres" | "postgresql") => postgres(url, settings, is_new),
        _ => {
            let what =
                format!("{shown:?} is neither nats://HOST,HOST,HOST/NAME nor postgres://USER@HOST/DATABASE");
            Err(invalid("cluster.log", what))
        }
    }
}

fn nats(url: &str, settings: &Cluster, is_new: bool) -> Result<Arc<dyn SharedLog>, ServeError> {
    let mut nats: NatsSettings = url.parse().map_err(nats_error)?;
    nats.ca_file = settings.log_ca.clone();
    if let Some((name, password)) = user(settings)? {
        nats.user = Some(NatsUser { name, password });
    }
    nats.allow_one_server = settings.allow_one_server;
    let mut attempts = CREATE_ATTEMPTS;
    loop {
        attempts -= 1;
        let opened = match NatsLog::open(&nats) {
            Err(NatsError::Missing { .. }) if is_new => NatsLog::create(&nats),
            opened => opened,
        };
        match opened {
            // Another node is creating it: each server of NATS knows the stream a little later.
            Err(NatsError::Exists { .. } | NatsError::Missing { .. }) if is_new && attempts > 0 => {
                std::thread::sleep(CREATE_PAUSE);
            }
            opened => return Ok(Arc::new(opened.map_err(nats_error)?)),
        }
    }
}

fn nats_error(error: NatsError) -> ServeError {
    match error {
        NatsError::Url { .. } => invalid("cluster.log", error.to_string()),
        error => cluster_error(error.to_string()),
    }
}

fn postgres(url: &str, settings: &Cluster, is_new: bool) -> Result<Arc<dyn SharedLog>, ServeError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| invalid("cluster.log_ca", format!("{}: {error}", path.display())))
    };
    let certificates = settings.log_ca.as_deref().map(read).transpose()?;
    let user = user(settings)?;
    let options = PostgresOptions { user, certificates, create: is_new, ..PostgresOptions::default() };
    let opened = PostgresLog::open(url, options).map_err(|error| cluster_error(error.to_string()))?;
    Ok(Arc::new(opened))
}

/// Name and password in the file of `cluster.credentials`.
fn user(settings: &Cluster) -> Result<Option<(String, String)>, ServeError> {
    let Some(path) = &settings.credentials else { return Ok(None) };
    let failed = |what: &str| invalid("cluster.credentials", format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error.to_string()))?;
    if text.starts_with(KEY_FILE) {
        return Err(failed("users with a key (.creds) are not supported; one line USER:PASSWORD is"));
    }
    match text.trim().split_once(':') {
        Some((name, password)) if !name.is_empty() && !text.trim().contains('\n') => {
            Ok(Some((name.to_owned(), password.to_owned())))
        }
        _ => Err(failed("expected one line USER:PASSWORD")),
    }
}

fn invalid(place: &str, what: String) -> ServeError {
    SettingsError::Invalid { place: place.to_owned(), what }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_service_is_rejected_without_its_password() {
        let settings =
            Cluster { log: Some("kafka://ann:secret@a:9092/shop".to_owned()), ..Cluster::default() };
        let error = open(&settings, true).unwrap_err().to_string();
        assert!(error.starts_with("cluster.log: ") && error.contains("kafka"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn credentials_file_has_one_line_and_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("user");
        let settings = Cluster { credentials: Some(path.clone()), ..Cluster::default() };
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            user(&settings)
        };
        assert_eq!(read("ann:a:b\n").unwrap(), Some(("ann".to_owned(), "a:b".to_owned())));
        for text in ["", "ann", ":x", "ann:x\nbob:y\n", "-----BEGIN NATS USER JWT-----\neyJ0"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with("cluster.credentials: "), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(user(&settings).is_err());
        assert_eq!(user(&Cluster::default()).unwrap(), None);
    }
}
