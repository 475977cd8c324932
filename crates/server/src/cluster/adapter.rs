//! The log service that the settings name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropewalk::cluster::SharedLog;
use ropewalk_cluster_nats::{NatsError, NatsLog, NatsSettings};
use ropewalk_cluster_postgres::{PostgresLog, PostgresOptions};

use crate::cluster::cluster_error;
use crate::config::settings::{Cluster, SettingsError, without_passwords};
use crate::server::ServeError;

/// How often a node tries to open the stream that another one creates, and the pause between.
const CREATE_ATTEMPTS: u32 = 20;
const CREATE_PAUSE: Duration = Duration::from_millis(250);

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
    nats.credentials_file = settings.credentials.clone();
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
    let options = PostgresOptions { certificates, create: is_new, ..PostgresOptions::default() };
    let opened = PostgresLog::open(url, options).map_err(|error| cluster_error(error.to_string()))?;
    Ok(Arc::new(opened))
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
}
