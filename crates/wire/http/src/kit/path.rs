//! Names in paths, percent-decoded.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::kit::problem::Problem;

/// The parts of the path that have names, as `T` has them.
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(names)| Self(names)).map_err(|rejection| Problem::invalid(rejection.body_text()))
    }
}

/// `{store}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct StoreName {
    /// Name of the store: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub(crate) store: String,
}

/// `{store}` and `{source}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct StoreAndSource {
    /// Name of the store: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub(crate) store: String,
    /// Name of the upstream source.
    pub(crate) source: String,
}

/// `{store}` and `{group}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct StoreAndGroup {
    /// Name of the store: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub(crate) store: String,
    /// Name of the consumer group: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub(crate) group: String,
}

/// `{store}` and `{projection}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct StoreAndProjection {
    /// Name of the store: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub(crate) store: String,
    /// Name of the projection: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub(crate) projection: String,
}

/// `{store}` and `{consumer}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct StoreAndConsumer {
    /// Name of the store: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub(crate) store: String,
    /// Name of the consumer: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    pub(crate) consumer: String,
}
