//! Logs on standard error, as text or JSON.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::settings::{Log, LogFormat, SettingsError};

/// Begins to log. Does nothing when the process logs already.
///
/// # Errors
/// A level that makes no sense.
pub(crate) fn start(log: &Log) -> Result<(), SettingsError> {
    let invalid = |what: String| SettingsError::Invalid { place: "log.level".to_owned(), what };
    let filter = EnvFilter::builder().parse(&log.level).map_err(|error| invalid(error.to_string()))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    // An embedder or a test may have set a subscriber of its own, which then gets the records.
    let _ = match log.format {
        LogFormat::Text => registry.with(lines.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    Ok(())
}
