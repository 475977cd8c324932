//! Remote read: the samples of series, raw, for another Prometheus. `POST /api/v1/read`.
//!
//!   ReadRequest ─▶ each query: series by labels ─┬▶ ReadResponse, snappy                     (SAMPLES)
//!                                                └▶ frames of ChunkedReadResponse             (STREAMED_XOR_CHUNKS)
//!   frame: uvarint length │ CRC-32C of the data, big-endian │ data
//!
//! The first format that the client accepts and that can represent the samples is sent: native histograms
//! have no XOR chunks, so they are sent as samples. Series are sorted by labels. Staleness markers are
//! samples.
//! Source: "Remote Read API" of the Prometheus documentation.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::Response;
use ropewalk::hooks::put_varint;
use ropewalk::promql::Share;
use ropewalk::series::{Histogram, Labels, MatchOp, Matcher, Samples, SeriesAt};

use crate::app::App;
use crate::export::xor;
use crate::ingest::protobuf::{Fields, Malformed, put_bytes, put_double, put_integer, put_signed};
use crate::query::names;
use crate::request::body;
use crate::request::response::{ApiError, Kind, Plain};

/// Samples of a chunk, as in Prometheus.
const CHUNK_SAMPLES: usize = 120;
/// Queries of one request.
const QUERIES_MAX: usize = 1_000;

/// One query of a request.
#[derive(Debug, Default)]
struct Query {
    start_ms: i64,
    end_ms: i64,
    matchers: Vec<Matcher>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Samples,
    Chunks,
}

/// Decodes a request: its queries, and the accepted response formats, best first.
fn decode(bytes: &[u8]) -> Result<(Vec<Query>, Vec<Form>), ApiError> {
    let (mut queries, mut forms) = (Vec::new(), Vec::new());
    let malformed = |error: Malformed| ApiError::bad(error.to_string());
    let mut patterns = 0;
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next().map_err(malformed)? {
        match number {
            1 => queries.push(query(value.message().map_err(malformed)?, &mut patterns)?),
            2 => {
                let add = |form| match form {
                    0 => forms.push(Form::Samples),
                    1 => forms.push(Form::Chunks),
                    _ => {}
                };
                value.each_varint(add).map_err(malformed)?;
            }
            _ => {}
        }
    }
    if queries.len() > QUERIES_MAX {
        return Err(ApiError::bad(format!("{} queries; at most {QUERIES_MAX} are possible", queries.len())));
    }
    if forms.is_empty() {
        forms.push(Form::Samples);
    }
    Ok((queries, forms))
}

/// `patterns` counts the bytes of the regular expressions of all queries.
fn query(mut fields: Fields<'_>, patterns: &mut usize) -> Result<Query, ApiError> {
    let malformed = |error: Malformed| ApiError::bad(error.to_string());
    let mut query = Query::default();
    while let Some((number, value)) = fields.next().map_err(malformed)? {
        match number {
            1 => query.start_ms = value.i64().map_err(malformed)?,
            2 => query.end_ms = value.i64().map_err(malformed)?,
            3 => {
                let mut fields = value.message().map_err(malformed)?;
                let (mut op, mut name, mut text) = (MatchOp::Equal, "", "");
                while let Some((number, value)) = fields.next().map_err(malformed)? {
                    match number {
                        1 => {
                            let number = value.u64().map_err(malformed)?;
                            let unknown = || ApiError::bad(format!("there is no matcher type {number}"));
                            op = MatchOp::from_number(number).ok_or_else(unknown)?;
                        }
                        2 => name = value.text().map_err(malformed)?,
                        3 => text = value.text().map_err(malformed)?,
                        _ => {}
                    }
                }
                let matcher = Matcher::new(name, op, text);
                let matcher = matcher.map_err(|error| ApiError::bad(error.to_string()))?;
                *patterns += matcher.pattern_bytes();
                names::check_pattern_bytes(*patterns)?;
                query.matchers.push(matcher);
            }
            _ => {}
        }
    }
    Ok(query)
}

/// The result of one query, encoded for the response.
struct Found {
    /// Labels, and the message without them.
    series: Vec<(Labels, Vec<u8>)>,
    histograms: bool,
}

fn find(
    at: &SeriesAt<'_>,
    query: &Query,
    form: Form,
    (samples_max, left): (u64, &mut u64),
    share: &mut Share,
) -> Result<Found, ApiError> {
    let mut found = Found { series: Vec::new(), histograms: false };
    let mut selection = at.select(&query.matchers, query.start_ms, query.end_ms)?;
    let mut samples = Samples::default();
    while selection.next().is_some() {
        samples.clear();
        if selection.samples(&mut samples)? == 0 {
            continue;
        }
        *left = left.checked_sub(samples.len() as u64).ok_or_else(|| {
            ApiError::new(Kind::Execution, format!("the read has more than {samples_max} samples"))
        })?;
        found.histograms |= samples.histograms.iter().any(Option::is_some);
        if found.histograms && form == Form::Chunks {
            return Ok(found);
        }
        let message = match form {
            Form::Samples => rows(&samples),
            Form::Chunks => chunks(&samples),
        };
        // The message, and its copy in the response body.
        share.grow(2 * message.capacity())?;
        found.series.extend(selection.labels().map(|labels| (labels, message)));
    }
    found.series.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Fields 2 and 4 of a `TimeSeries`.
fn rows(samples: &Samples) -> Vec<u8> {
    let (mut out, mut row) = (Vec::new(), Vec::new());
    let mut histograms = samples.histograms.iter();
    for (time_ms, value) in samples.times_ms.iter().zip(&samples.values) {
        row.clear();
        match histograms.next() {
            Some(Some(histogram)) => {
                put_histogram(&mut row, histogram, *time_ms);
                put_bytes(&mut out, 4, &row);
            }
            _ => {
                put_double(&mut row, 1, *value);
                put_integer(&mut row, 2, *time_ms as u64);
                put_bytes(&mut out, 2, &row);
            }
        }
    }
    out
}

/// Fields 2 of a `ChunkedSeries`.
fn chunks(samples: &Samples) -> Vec<u8> {
    let (mut out, mut chunk) = (Vec::new(), Vec::new());
    for (times, values) in samples.times_ms.chunks(CHUNK_SAMPLES).zip(samples.values.chunks(CHUNK_SAMPLES)) {
        chunk.clear();
        put_integer(&mut chunk, 1, times.first().copied().unwrap_or_default() as u64);
        put_integer(&mut chunk, 2, times.last().copied().unwrap_or_default() as u64);
        put_integer(&mut chunk, 3, 1);
        put_bytes(&mut chunk, 4, &xor::encode(times, values));
        put_bytes(&mut out, 2, &chunk);
    }
    out
}

fn put_histogram(out: &mut Vec<u8>, histogram: &Histogram, time_ms: i64) {
    put_double(out, 2, histogram.count);
    put_double(out, 3, histogram.sum);
    put_signed(out, 4, i64::from(histogram.schema));
    put_double(out, 5, histogram.zero_threshold);
    put_double(out, 7, histogram.zero_count);
    for (buckets, spans, counts) in [(&histogram.negative, 8, 10), (&histogram.positive, 11, 13)] {
        let mut end = 0_i32;
        let mut span: Option<(i32, u64)> = None;
        let put_span = |out: &mut Vec<u8>, (offset, length): (i32, u64)| {
            let mut message = Vec::new();
            put_signed(&mut message, 1, i64::from(offset));
            put_integer(&mut message, 2, length);
            put_bytes(out, spans, &message);
        };
        let mut packed = Vec::new();
        for bucket in buckets {
            match &mut span {
                Some((_, length)) if bucket.index == end => *length += 1,
                _ => {
                    if let Some(done) = span.take() {
                        put_span(out, done);
                    }
                    span = Some((bucket.index.wrapping_sub(end), 1));
                }
            }
            end = bucket.index.wrapping_add(1);
            packed.extend_from_slice(&bucket.count.to_bits().to_le_bytes());
        }
        if let Some(done) = span {
            put_span(out, done);
            put_bytes(out, counts, &packed);
        }
    }
    put_integer(out, 14, histogram.hint as u64);
    put_integer(out, 15, time_ms as u64);
    if !histogram.custom.is_empty() {
        let packed: Vec<u8> =
            histogram.custom.iter().flat_map(|bound| bound.to_bits().to_le_bytes()).collect();
        put_bytes(out, 16, &packed);
    }
}

/// Field 1 of a series of either form, then the rest of it.
fn series_message(labels: &Labels, rest: &[u8]) -> Vec<u8> {
    let (mut out, mut label) = (Vec::with_capacity(rest.len() + labels.as_bytes().len() * 2), Vec::new());
    for (name, value) in labels.iter() {
        label.clear();
        put_bytes(&mut label, 1, name.as_bytes());
        put_bytes(&mut label, 2, value.as_bytes());
        put_bytes(&mut out, 1, &label);
    }
    out.extend_from_slice(rest);
    out
}

/// The body of a SAMPLES response, before compression.
fn samples_body(found: Vec<Found>) -> Vec<u8> {
    let mut out = Vec::new();
    for found in found {
        let mut result = Vec::new();
        for (labels, rest) in found.series {
            put_bytes(&mut result, 1, &series_message(&labels, &rest));
        }
        put_bytes(&mut out, 1, &result);
    }
    out
}

/// The frames of a chunked response: one for each series, since Prometheus reads only the first series of a
/// frame.
fn frames(found: Vec<Found>) -> Vec<Bytes> {
    let mut frames = Vec::new();
    for (index, found) in found.into_iter().enumerate() {
        for (labels, rest) in found.series {
            let mut data = Vec::new();
            put_bytes(&mut data, 1, &series_message(&labels, &rest));
            put_integer(&mut data, 2, index as u64);
            let mut frame = Vec::with_capacity(data.len() + 16);
            put_varint(&mut frame, data.len() as u64);
            frame.extend_from_slice(&crc32c::crc32c(&data).to_be_bytes());
            frame.append(&mut data);
            frames.push(Bytes::from(frame));
        }
    }
    frames
}

enum Sent {
    Samples(Vec<u8>),
    Chunks(Vec<Bytes>),
}

/// `POST /api/v1/read`.
pub(crate) async fn read(State(app): State<App>, request: Request) -> Result<Response, Plain> {
    let body = body::snappy(&app.service, request).await?;
    let samples_max = app.settings.query_samples;
    let (store, snapshot) = (app.store()?, app.service.database().snapshot());
    let mut share = Share::new(Some(app.memory.clone()));
    let work = move || {
        let (queries, forms) = decode(&body.inflate()?)?;
        let at = snapshot.series(&store);
        for form in forms {
            let mut left = samples_max;
            share.resize(0)?;
            let mut found: Vec<Found> = Vec::new();
            for query in &queries {
                found.push(find(&at, query, form, (samples_max, &mut left), &mut share)?);
            }
            match form {
                Form::Chunks if found.iter().any(|found| found.histograms) => {}
                Form::Chunks => return Ok(Sent::Chunks(frames(found))),
                Form::Samples => {
                    let packed = snap::raw::Encoder::new().compress_vec(&samples_body(found));
                    let failed =
                        |_| ApiError::new(Kind::Execution, "the answer is too large for one message");
                    return packed.map(Sent::Samples).map_err(failed);
                }
            }
        }
        Err(ApiError::new(Kind::Execution, "native histograms can be read as samples only"))
    };
    let sent = app.off_thread(work).await??;
    let (kind, encoding, body) = match sent {
        Sent::Samples(bytes) => ("application/x-protobuf", Some("snappy"), Body::from(bytes)),
        Sent::Chunks(frames) => {
            let frames = futures_util::stream::iter(frames.into_iter().map(Ok::<_, Infallible>));
            (
                "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse",
                None,
                Body::from_stream(frames),
            )
        }
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(encoding) = encoding {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    Ok(response)
}
