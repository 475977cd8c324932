//! Names in paths, percent-decoded.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use ropewalk_auth::Caller;
use ropewalk_wire::Code;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::app::App;
use crate::kit::problem::Problem;

/// The parts of the path that have names, as `T` has them.
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(names)| Self(names)).map_err(|rejection| Problem::invalid_path(rejection.body_text()))
    }
}

/// Parts of a request to a path: the caller, the names in the path, the query string.
pub(crate) struct PathRequest<T> {
    pub(crate) app: App,
    pub(crate) caller: Caller,
    pub(crate) names: T,
    pub(crate) query: Option<String>,
}

impl<T: DeserializeOwned + Send> FromRequestParts<App> for PathRequest<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Problem::new(Code::Internal, "the request has no caller"))?;
        let Named(names) = Named::from_request_parts(parts, app).await?;
        Ok(Self { app: app.clone(), caller, names, query: parts.uri.query().map(str::to_owned) })
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
