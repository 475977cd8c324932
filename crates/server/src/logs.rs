//! Logs on standard error, as text or JSON; with the feature `otel` also spans, to a collector.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

use crate::settings::{Log, LogFormat, SettingsError};

/// What is logged, and what was promised to a collector.
pub(crate) struct Logs {
    #[cfg(feature = "otel")]
    spans: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// Begins to log, inside the runtime that serves. Does nothing when the process logs already.
///
/// # Errors
/// A level that makes no sense; a collector whose address makes none.
pub(crate) fn start(log: &Log) -> Result<Logs, SettingsError> {
    let invalid = |what: String| SettingsError::Invalid { place: "log.level".to_owned(), what };
    // A word alone would be a target, and everything else would be silent.
    let is_level = |word: &str| word.contains(['=', '[']) || word.trim().parse::<LevelFilter>().is_ok();
    if let Some(word) = log.level.split(',').find(|word| !is_level(word)) {
        return Err(invalid(format!(
            "{word:?} is neither error, warn, info, debug, trace, off nor TARGET=LEVEL"
        )));
    }
    let filter = EnvFilter::builder().parse(&log.level).map_err(|error| invalid(error.to_string()))?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(false).with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let registry = tracing_subscriber::registry().with(lines);
    #[cfg(feature = "otel")]
    let (spans, registry) = {
        let spans = otel::provider()?;
        let layer = spans.as_ref().map(otel::layer);
        (spans, registry.with(layer))
    };
    // An embedder or a test may have set a subscriber of its own, which then gets the records.
    let _ = registry.try_init();
    Ok(Logs {
        #[cfg(feature = "otel")]
        spans,
    })
}

impl Logs {
    /// Sends what waits to be sent. The runtime must still run.
    pub(crate) fn finish(self) {
        #[cfg(feature = "otel")]
        if let Some(Err(error)) = self.spans.map(|spans| spans.shutdown()) {
            tracing::warn!(%error, "the last spans were not collected");
        }
    }
}

/// Spans over OTLP (gRPC), when the variables that every OpenTelemetry exporter knows name a collector.
#[cfg(feature = "otel")]
mod otel {
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::Subscriber;
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::registry::LookupSpan;

    use crate::settings::SettingsError;
    use crate::spans::TARGET;

    const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

    pub(super) fn provider() -> Result<Option<SdkTracerProvider>, SettingsError> {
        let Some(variable) = VARIABLES.into_iter().find(|name| std::env::var_os(name).is_some()) else {
            return Ok(None);
        };
        let exporter = SpanExporter::builder().with_tonic().build().map_err(|error| {
            SettingsError::Invalid { place: variable.to_owned(), what: error.to_string() }
        })?;
        let resource = Resource::builder().with_service_name("ropewalk").build();
        Ok(Some(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build()))
    }

    pub(super) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let spans = Targets::new().with_target(TARGET, LevelFilter::TRACE);
        tracing_opentelemetry::layer().with_tracer(provider.tracer("ropewalk")).with_filter(spans)
    }
}
