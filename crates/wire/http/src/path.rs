//! Names in paths, percent-decoded.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::problem::Problem;

/// `{store}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct StoreName {
    /// Name of the store: 1 to 255 bytes without control characters.
    pub(crate) store: String,
}

/// `{store}` and `{source}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct StoreAndSource {
    /// Name of the store: 1 to 255 bytes without control characters.
    pub(crate) store: String,
    /// Name of the upstream source.
    pub(crate) source: String,
}

async fn named<T: DeserializeOwned + Send, S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
) -> Result<T, Problem> {
    let path = Path::<T>::from_request_parts(parts, state).await;
    path.map(|Path(names)| names).map_err(|rejection| Problem::invalid(rejection.body_text()))
}

impl<S: Send + Sync> FromRequestParts<S> for StoreName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        named(parts, state).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for StoreAndSource {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        named(parts, state).await
    }
}
