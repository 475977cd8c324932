//! Remote write, 1.0 and 2.0: the push protocol of Prometheus and agents.
//!
//!   body ─▶ snappy ─▶ protobuf in place ─▶ SampleBatch ─▶ one commit ─▶ 204 when durable
//!
//! A rejected series does not affect the others: they are written, and the response is 400 with the first
//! reason, as both versions of the protocol require; a client does not retry it. A temporary error is 429 or
//! 5xx, and nothing was written. The 2.0 responses have the numbers of samples, histograms and exemplars
//! written.
//! Source: "Prometheus Remote-Write" 1.0 and 2.0 specifications.

mod histogram;
pub(crate) mod known;
mod v1;
mod v2;

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ropewalk::series::{Exemplar, Labels, SampleBatch, SeriesId, SeriesSamples};
use ropewalk_auth::Caller;
use ropewalk_http_kit::encoding::with_snappy;
use ropewalk_http_kit::media::MediaType;

use crate::app::App;
use crate::ingest::labels::{LabelSet, Rejected};
use crate::ingest::metadata;
use crate::ingest::metadata::Descriptions;
use crate::ingest::protobuf::Malformed;
use crate::ingest::{self, Refused};
use crate::request::body;
use crate::request::response::{ApiError, Kind, Plain};

use known::{Key, Known};

const SAMPLES: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS: HeaderName = HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS: HeaderName = HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

/// Bodies up to this size are decoded on the thread that read them.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Limit of label bytes per byte of the request limit: symbols may be referenced repeatedly.
const LABEL_BYTES_PER_BYTE: usize = 8;

/// A decoded request.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) batch: SampleBatch,
    pub(crate) samples: u64,
    pub(crate) histograms: u64,
    pub(crate) exemplars: u64,
    pub(crate) metadata: Descriptions,
    pub(crate) refused: Refused,
    /// The batch names series by their numbers.
    by_number: bool,
    /// New series, to be added to the cache.
    unknown: Vec<(Key, Box<[u8]>)>,
}

/// Limits of one decoding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) label_bytes_max: usize,
    /// Older samples are rejected one by one instead of the complete request.
    pub(crate) floor_ms: i64,
}

/// Reasons to reject a complete request.
#[derive(Debug)]
pub(crate) enum Fault {
    Malformed(Malformed),
    LabelBytes,
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Malformed(malformed) => Self::bad(malformed.to_string()),
            Fault::LabelBytes => Self::new(Kind::TooLarge, "the labels of the request are too many in all"),
        }
    }
}

impl Decoded {
    /// Counts the samples of a rejected series, with the reason of the first.
    pub(crate) fn refuse(&mut self, Rejected(why): Rejected, samples: u64) {
        self.refused.add(samples.max(1), || why);
    }
}

/// A series that is created with its first sample: if all are rejected, it is not created.
struct Begins<'b, 'l> {
    batch: Option<&'b mut SampleBatch>,
    who: Who<'l>,
    begun: Option<SeriesSamples<'b>>,
}

/// Identifies a series.
#[derive(Clone, Copy)]
enum Who<'l> {
    /// By its labels as they are stored.
    Labels(&'l [u8]),
    Id(SeriesId),
}

impl<'b, 'l> Begins<'b, 'l> {
    fn new(batch: &'b mut SampleBatch, who: Who<'l>) -> Self {
        Self { batch: Some(batch), who, begun: None }
    }

    #[inline]
    fn samples(&mut self) -> &mut SeriesSamples<'b> {
        match self.batch.take() {
            Some(batch) => self.begun.insert(match self.who {
                Who::Labels(labels) => batch.series_bytes(labels),
                Who::Id(id) => batch.series_id(id),
            }),
            None => self.begun.as_mut().expect("begun when the batch was taken"),
        }
    }
}

/// An exemplar with its labels, which need no metric name.
fn exemplar(labels: &LabelSet<'_>, value: f64, time_ms: i64) -> Result<Exemplar, Rejected> {
    let texts = labels.texts().map_err(|Rejected(why)| Rejected(format!("exemplar: {why}")))?;
    let labels = match texts.iter().any(|(_, value)| !value.is_empty()) {
        true => Some(Labels::new(texts).map_err(|error| Rejected(format!("exemplar: {error}")))?),
        false => None,
    };
    Ok(Exemplar { time_ms, value, labels })
}

/// Decodes a body, on another thread if it is large.
async fn decode(
    app: &App,
    body: Bytes,
    version: Version,
    known: Option<Arc<Known>>,
) -> Result<Decoded, ApiError> {
    let bytes_max = app.service.limits().request_bytes;
    let bounds = Bounds {
        label_bytes_max: bytes_max.saturating_mul(LABEL_BYTES_PER_BYTE),
        floor_ms: app.store()?.retention_floor_ms(),
    };
    let size = body.len();
    let work = move || {
        let decoded = with_snappy(&body, bytes_max, |inflated| match version {
            Version::One => v1::decode(inflated, bounds, known.as_deref()),
            Version::Two => v2::decode(inflated, bounds),
        });
        Ok::<_, ApiError>(decoded??)
    };
    if size > INLINE_BYTES_MAX {
        return app.off_thread(work).await?;
    }
    let _turn = app.turns.next().await;
    work()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The protocol version of the body.
fn version(headers: &HeaderMap) -> Result<Version, ApiError> {
    if !headers.contains_key(CONTENT_TYPE) {
        return Ok(Version::One);
    }
    let refuse = || {
        let known =
            "application/x-protobuf, its proto prometheus.WriteRequest or io.prometheus.write.v2.Request";
        ApiError::new(Kind::MediaType, format!("Content-Type has to be {known}"))
    };
    let kind = MediaType::of(headers);
    if !kind.is("application/x-protobuf") {
        return Err(refuse());
    }
    let proto = kind.parameters("proto").next();
    match proto {
        None | Some("prometheus.WriteRequest") => Ok(Version::One),
        Some("io.prometheus.write.v2.Request") => Ok(Version::Two),
        Some(_) => Err(refuse()),
    }
}

/// `POST /api/v1/write`.
pub(crate) async fn write(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Plain> {
    let version = version(request.headers())?;
    let body = body::snappy(&app.service, request).await?.into_bytes();
    // The cache is bypassed when relabelling or drop rules need the labels.
    let known = (!ingest::looks_at_labels(&app)).then(|| app.known.clone());
    let mut decoded = decode(&app, body.clone(), version, known.clone()).await?;
    let mut written = false;
    if decoded.by_number && !decoded.batch.is_empty() {
        written = ingest::append_numbered(&app, &caller, &decoded.batch).await?;
        if !written {
            app.known.forget();
            decoded = decode(&app, body, version, None).await?;
        }
    }
    let Decoded { batch, samples, histograms, exemplars, metadata, mut refused, unknown, .. } = decoded;
    if !written && samples + histograms + exemplars > 0 {
        ingest::push(&app, &caller, batch, &mut refused).await?;
    }
    app.known.learn(unknown, &app.store()?);
    metadata::store(&app, metadata).await?;
    let mut response = match refused.into_error() {
        None => StatusCode::NO_CONTENT.into_response(),
        Some(error) => error.into_text(),
    };
    if version == Version::Two {
        let headers = response.headers_mut();
        headers.insert(SAMPLES, HeaderValue::from(samples));
        headers.insert(HISTOGRAMS, HeaderValue::from(histograms));
        headers.insert(EXEMPLARS, HeaderValue::from(exemplars));
    }
    Ok(response)
}
