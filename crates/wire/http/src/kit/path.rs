//! Names in paths, percent-decoded.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use ropewalk_auth::Caller;
use ropewalk_wire::{AskedStore, Code, Page};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::app::App;
use crate::kit::params::Params;
use crate::kit::problem::{Problem, Result};

/// The parts of the path that have names, as `T` has them.
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(names)| Self(names)).map_err(|rejection| Problem::invalid_path(rejection.body_text()))
    }
}

/// Parts of a request to a path: the caller, the names in the path (if any), the query string.
pub(crate) struct PathRequest<T = ()> {
    pub(crate) app: App,
    pub(crate) caller: Caller,
    pub(crate) names: T,
    pub(crate) query: Option<String>,
}

impl<T: DeserializeOwned + Send> FromRequestParts<App> for PathRequest<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Problem::new(Code::Internal, "the request has no caller"))?;
        let Named(names) = Named::from_request_parts(parts, app).await?;
        Ok(Self { app: app.clone(), caller, names, query: parts.uri.query().map(str::to_owned) })
    }
}

/// Names of a path below a store.
pub(crate) trait InStore {
    fn store(&self) -> &str;
}

impl<T: InStore> PathRequest<T> {
    /// The store, for a request without other parameters than `must_exist`.
    pub(crate) fn asked_store(&self) -> Result<AskedStore<'_>> {
        let mut params = Params::parse(self.query.as_deref())?;
        let asked = params.asked(self.names.store())?;
        params.finish()?;
        Ok(asked)
    }

    /// As [`PathRequest::asked_store`], for a page of a list that is sorted by name.
    pub(crate) fn asked_page(&self) -> Result<(AskedStore<'_>, Page)> {
        let mut params = Params::parse(self.query.as_deref())?;
        let asked = (params.asked(self.names.store())?, params.page()?);
        params.finish()?;
        Ok(asked)
    }
}

/// The names of a path below a store: that of the store, and at most one other.
macro_rules! names_in_store {
    ($(#[$doc:meta])* $name:ident $($(#[$about:meta])* $field:ident)?) => {
        $(#[$doc])*
        #[derive(Deserialize, IntoParams)]
        #[into_params(parameter_in = Path)]
        pub(crate) struct $name {
            /// Name of the store: 1 to 255 bytes without control characters.
            #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
            pub(crate) store: String,
            $($(#[$about])* pub(crate) $field: String,)?
        }

        impl InStore for $name {
            fn store(&self) -> &str {
                &self.store
            }
        }
    };
}

names_in_store!(
    /// `{store}`.
    StoreName
);
names_in_store!(
    /// `{store}` and `{source}`.
    StoreAndSource
    /// Name of the upstream source.
    source
);
names_in_store!(
    /// `{store}` and `{group}`.
    StoreAndGroup
    /// Name of the consumer group: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    group
);
names_in_store!(
    /// `{store}` and `{projection}`.
    StoreAndProjection
    /// Name of the projection: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    projection
);
names_in_store!(
    /// `{store}` and `{consumer}`.
    StoreAndConsumer
    /// Name of the consumer: 1 to 255 bytes without control characters.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    consumer
);
