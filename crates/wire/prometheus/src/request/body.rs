//! Request bodies by their compression.

use axum::extract::Request;
use ropewalk_http_kit::body::RequestBody;
use ropewalk_http_kit::encoding::Encoding;
use ropewalk_wire::Service;

use crate::request::response::{ApiError, Kind};

/// Reads a body that must not be compressed.
pub(crate) async fn plain(service: &Service, request: Request) -> Result<RequestBody, ApiError> {
    read(service, request, &[Encoding::Identity], "Content-Encoding: the body must not be compressed").await
}

/// Reads a body that may be compressed.
pub(crate) async fn text(service: &Service, request: Request) -> Result<RequestBody, ApiError> {
    read(service, request, &Encoding::TEXTS, "Content-Encoding: gzip and zstd are possible").await
}

async fn read(
    service: &Service,
    request: Request,
    allowed: &[Encoding],
    refusal: &str,
) -> Result<RequestBody, ApiError> {
    let encoding = Encoding::of(request.headers(), allowed);
    let encoding = encoding.map_err(|_| ApiError::new(Kind::MediaType, refusal))?;
    Ok(RequestBody::read(service, request, encoding).await?)
}

/// Reads a body that is compressed by snappy. The first clients do not send the header.
pub(crate) async fn snappy(service: &Service, request: Request) -> Result<RequestBody, ApiError> {
    let encoding = Encoding::of(request.headers(), &[Encoding::Identity, Encoding::Snappy]);
    encoding.map_err(|_| ApiError::new(Kind::MediaType, "Content-Encoding has to be snappy"))?;
    Ok(RequestBody::read(service, request, Encoding::Snappy).await?)
}
