//! Logs on standard error, as text or JSON; with the feature `otel` also spans, to a collector.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::settings::{Log, LogFormat, SettingsError};

/// Active logging and the exporter of spans.
pub(crate) struct Logs {
    #[cfg(feature = "otel")]
    spans: Option<otel::Spans>,
}

/// Starts logging. Does nothing when the process already logs.
///
/// # Errors
/// An invalid level or collector address.
pub(crate) fn start(log: &Log) -> Result<Logs, SettingsError> {
    let invalid = |what: String| SettingsError::Invalid { place: "log.level".to_owned(), what };
    // A single unknown word would be taken as a target, which silences everything else.
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
        let spans = otel::spans()?;
        let layer = spans.as_ref().map(|spans| otel::layer(&spans.provider));
        (spans, registry.with(layer))
    };
    // If an embedder or a test has set its own subscriber, that one gets the records.
    let _ = registry.try_init();
    Ok(Logs {
        #[cfg(feature = "otel")]
        spans,
    })
}

impl Logs {
    /// Sends queued spans. Must not be called inside a runtime.
    pub(crate) fn finish(self) {
        #[cfg(feature = "otel")]
        if let Some(spans) = self.spans
            && let Err(error) = spans.provider.shutdown()
        {
            tracing::warn!(%error, "cannot export the last spans");
        }
    }
}

/// Spans over OTLP (gRPC), when the standard OpenTelemetry variables name a collector.
#[cfg(feature = "otel")]
mod otel {
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tokio::runtime::Runtime;
    use tracing::Subscriber;
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::registry::LookupSpan;

    use crate::config::settings::SettingsError;
    use crate::process::spans::TARGET;

    const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

    /// The exporter of spans, and the runtime in which it sends them: that of the server may end before.
    pub(super) struct Spans {
        pub(super) provider: SdkTracerProvider,
        _runtime: Runtime,
    }

    pub(super) fn spans() -> Result<Option<Spans>, SettingsError> {
        let Some(variable) = VARIABLES.into_iter().find(|name| std::env::var_os(name).is_some()) else {
            return Ok(None);
        };
        let invalid = |what: String| SettingsError::Invalid { place: variable.to_owned(), what };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| invalid(error.to_string()))?;
        let exporter = {
            let _inside = runtime.enter();
            SpanExporter::builder().with_tonic().build().map_err(|error| invalid(error.to_string()))?
        };
        let resource = Resource::builder().with_service_name("ropewalk").build();
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        Ok(Some(Spans { provider, _runtime: runtime }))
    }

    pub(super) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let spans = Targets::new().with_target(TARGET, LevelFilter::TRACE);
        tracing_opentelemetry::layer().with_tracer(provider.tracer("ropewalk")).with_filter(spans)
    }
}
