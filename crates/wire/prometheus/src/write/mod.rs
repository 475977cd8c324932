//! Remote write, 1.0 and 2.0: what Prometheus and every agent push.
//!
//!   body ─▶ snappy ─▶ protobuf in place ─▶ SampleBatch ─▶ one commit ─▶ 204 when it is on disk
//!
//! A series that cannot be taken does not take the others with it: they are written, and the answer is 400 with the first
//! reason, as both versions of the protocol ask; a client does not send it again. What may pass is 429 or 5xx, and nothing
//! of it was written. The 2.0 answers say how many samples, histograms and exemplars were written.
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
use ropewalk_wire::Caller;

use crate::App;
use crate::answer::{ApiError, Kind};
use crate::body::{self, Encoding};
use crate::described::{self, Descriptions};
use crate::ingest::{self, Refused};
use crate::labels::{LabelSet, Rejected};
use crate::protobuf::Malformed;

use known::{Key, Known};

const SAMPLES: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS: HeaderName = HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS: HeaderName = HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

/// Bodies up to this size are decoded on the thread that read them.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Label bytes that a request may mean per byte that it may have: symbols may be named again and again.
const LABEL_BYTES_PER_BYTE: usize = 8;

/// What a request holds.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) batch: SampleBatch,
    pub(crate) samples: u64,
    pub(crate) histograms: u64,
    pub(crate) exemplars: u64,
    pub(crate) metadata: Descriptions,
    pub(crate) refused: Refused,
    /// Series go by their numbers.
    by_number: bool,
    /// Series whose numbers are to be learnt.
    unknown: Vec<(Key, Box<[u8]>)>,
}

/// What one decoding may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) label_bytes_max: usize,
    /// Older samples are refused one by one instead of the whole request.
    pub(crate) floor_ms: i64,
}

/// Why a request is refused as a whole.
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
    /// Takes a series out again whose samples cannot be taken.
    pub(crate) fn refuse(&mut self, Rejected(why): Rejected, samples: u64) {
        self.refused.add(samples.max(1), || why);
    }
}

/// A series that begins with its first sample: one of which nothing is taken does not come into being.
struct Begins<'b, 'l> {
    batch: Option<&'b mut SampleBatch>,
    who: Who<'l>,
    begun: Option<SeriesSamples<'b>>,
}

/// Which series.
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

/// Reads a body, where it may take its time.
async fn decode(
    app: &App,
    body: Bytes,
    version: Version,
    known: Option<Arc<Known>>,
) -> Result<Decoded, ApiError> {
    let bytes_max = app.service.limits().request_bytes;
    let bounds = Bounds {
        label_bytes_max: bytes_max.saturating_mul(LABEL_BYTES_PER_BYTE),
        floor_ms: app.store()?.floor(),
    };
    let size = body.len();
    let work = move || {
        let decoded = body::with_snappy(&body, bytes_max, |inflated| match version {
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

/// Which message the body holds.
fn version(headers: &HeaderMap) -> Result<Version, ApiError> {
    let text = headers.get(CONTENT_TYPE).map_or(Ok("application/x-protobuf"), HeaderValue::to_str);
    let refuse = || {
        let known =
            "application/x-protobuf, its proto prometheus.WriteRequest or io.prometheus.write.v2.Request";
        ApiError::new(Kind::MediaType, format!("Content-Type has to be {known}"))
    };
    let mut parts = text.map_err(|_| refuse())?.split(';').map(str::trim);
    if !parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/x-protobuf")) {
        return Err(refuse());
    }
    let proto = parts
        .filter_map(|part| part.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("proto"));
    match proto.map(|(_, value)| value.trim().trim_matches('"')) {
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
) -> Response {
    match answer(&app, &caller, request).await {
        Ok(response) => response,
        Err(error) => error.into_text(),
    }
}

async fn answer(app: &App, caller: &Caller, request: Request) -> Result<Response, ApiError> {
    let version = version(request.headers())?;
    match Encoding::of(request.headers()) {
        // Clients of the first days do not say it.
        Some(Encoding::Snappy | Encoding::Identity) => {}
        _ => return Err(ApiError::new(Kind::MediaType, "Content-Encoding has to be snappy")),
    }
    let body = body::read(app, request).await?;
    // What changes or drops series by their labels has to see them.
    let known = (!ingest::looks_at_labels(app)).then(|| app.known.clone());
    let mut decoded = decode(app, body.clone(), version, known.clone()).await?;
    let mut written = false;
    if decoded.by_number && !decoded.batch.is_empty() {
        written = ingest::append_numbered(app, caller, &decoded.batch).await?;
        if !written {
            app.known.forget();
            decoded = decode(app, body, version, None).await?;
        }
    }
    let Decoded { batch, samples, histograms, exemplars, metadata, mut refused, unknown, .. } = decoded;
    if !written && samples + histograms + exemplars > 0 {
        ingest::push(app, caller, batch, &mut refused).await?;
    }
    app.known.learn(unknown, &app.store()?);
    described::store(app, metadata).await?;
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
